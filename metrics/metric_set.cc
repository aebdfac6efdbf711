#include "metrics/metric_set.h"

#include <algorithm>

#include "common/check.h"

namespace baton {
namespace {

// A histogram has a cell for each bound, one for larger values, and the sum.
size_t CellsOfSeries(const MetricDeclaration& declaration) {
  return declaration.type == MetricType::kHistogram ? declaration.buckets.size() + 2 : 1;
}

// Number of values of a label; 1 if there is no such label or the program sets its value.
size_t ValuesOf(const MetricLabel& label) { return std::max<size_t>(1, label.values.size()); }

size_t CellsOf(const MetricDeclaration& declaration) {
  size_t cells = CellsOfSeries(declaration);
  for (const MetricLabel& label : declaration.labels) cells *= ValuesOf(label);
  return cells;
}

}  // namespace

MetricSet::MetricSet(MetricPrograms programs) {
  int32_t cells = 0;
  for (const MetricDeclaration& declaration : MetricTable()) {
    int32_t& first = first_[static_cast<size_t>(declaration.id)];
    const MetricPrograms having = ProgramsOf(declaration.id);
    if (having != MetricPrograms::kAll && having != programs) {
      first = kNotHere;
      continue;
    }
    first = cells;
    cells += static_cast<int32_t>(CellsOf(declaration));
  }
  cells_ = std::make_unique<Cell[]>(static_cast<size_t>(cells));
}

size_t MetricSet::FirstCell(Metric metric, const Place& place) const {
  const MetricDeclaration& declaration = DeclarationOf(metric);
  CHECK(Has(metric)) << declaration.name << " is not a metric of this program";
  size_t series = 0;
  for (size_t i = 0; i < place.size(); ++i) {
    const MetricLabel& label = declaration.labels[i];
    if (label.values.empty()) {
      CHECK(place[i] == kNotHere) << declaration.name << " has no label number " << i;
      continue;
    }
    CHECK(place[i] >= 0 && place[i] < static_cast<int32_t>(label.values.size()))
        << declaration.name << ": value " << place[i] << " of label " << label.name;
    series = series * label.values.size() + static_cast<size_t>(place[i]);
  }
  return static_cast<size_t>(first_[static_cast<size_t>(metric)]) +
         series * CellsOfSeries(declaration);
}

void MetricSet::ObserveAt(Metric metric, const Place& place, int64_t cells, int64_t times) {
  const std::span<const int64_t> bounds = DeclarationOf(metric).buckets;
  CHECK(!bounds.empty()) << DeclarationOf(metric).name << " is no histogram";
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), cells) - bounds.begin();
  Cell* const series = &cells_[FirstCell(metric, place)];
  series[bucket].fetch_add(times, std::memory_order_relaxed);
  series[bounds.size() + 1].fetch_add(cells * times, std::memory_order_relaxed);
}

void MetricSet::SetInfo(Metric metric, std::vector<std::string> values) {
  CHECK(Has(metric) && DeclarationOf(metric).is_info());
  std::lock_guard lock(info_mutex_);
  info_[metric] = std::move(values);
}

void MetricSet::ReadSeries(const MetricDeclaration& declaration, const Place& place,
                           MetricFamily& family) const {
  MetricSample sample;
  for (size_t i = 0; i < place.size(); ++i) {
    if (place[i] == kNotHere) continue;
    const MetricLabel& label = declaration.labels[i];
    sample.labels.emplace_back(label.name, label.values[static_cast<size_t>(place[i])]);
  }
  const Cell* const series = &cells_[FirstCell(declaration.id, place)];
  const auto scale = static_cast<double>(declaration.scale());
  const auto read = [&](size_t cell) { return series[cell].load(std::memory_order_relaxed); };
  if (declaration.type != MetricType::kHistogram) {
    sample.value = static_cast<double>(read(0)) / scale;
  } else {
    uint64_t seen = 0;
    for (size_t bucket = 0; bucket <= declaration.buckets.size(); ++bucket) {
      seen += static_cast<uint64_t>(read(bucket));
      sample.cumulative.push_back(seen);
    }
    sample.sum = static_cast<double>(read(declaration.buckets.size() + 1)) / scale;
  }
  family.samples.push_back(std::move(sample));
}

std::vector<MetricFamily> MetricSet::Read() const {
  std::vector<MetricFamily> families;
  for (const MetricDeclaration& declaration : MetricTable()) {
    if (!Has(declaration.id)) continue;
    MetricFamily family{.declaration = &declaration, .samples = {}};
    if (declaration.is_info()) {
      std::lock_guard lock(info_mutex_);
      const auto found = info_.find(declaration.id);
      if (found == info_.end()) continue;
      MetricSample& sample = family.samples.emplace_back();
      sample.value = 1;
      for (size_t i = 0; i < found->second.size(); ++i) {
        sample.labels.emplace_back(declaration.labels[i].name, found->second[i]);
      }
    } else {
      const auto values = [&](size_t label) {
        return static_cast<int32_t>(declaration.labels[label].values.size());
      };
      for (int32_t first = values(0) == 0 ? kNotHere : 0; first < values(0); ++first) {
        for (int32_t second = values(1) == 0 ? kNotHere : 0; second < values(1); ++second) {
          ReadSeries(declaration, {first, second}, family);
        }
      }
    }
    families.push_back(std::move(family));
  }
  return families;
}

}  // namespace baton
