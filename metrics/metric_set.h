// The metrics of one program, with their values: the table of metric_table.h, and a cell for each
// value of it. All values are 0 at first.
//
// Counting is one atomic addition, relaxed. It takes no lock and no memory. So a reader may see one
// of two additions that belong together and not yet the other.
//
// Units: cells (MetricDeclaration::scale), so microseconds for metrics in seconds.
//
// Thread safety: every function, from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "metrics/metric_table.h"

namespace baton {

// One time series, or the series of one histogram.
struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;  // in units; of a counter or gauge
  // Of a histogram: for each bound, the observations that are at most as large, and then all.
  std::vector<uint64_t> cumulative = {};
  double sum = 0;
};

struct MetricFamily {
  const MetricDeclaration* declaration;
  std::vector<MetricSample> samples;
};

class MetricSet {
 public:
  // `programs`: kRouters or kWorkers. The set has their metrics and those of every program.
  explicit MetricSet(MetricPrograms programs);
  MetricSet(const MetricSet&) = delete;
  MetricSet& operator=(const MetricSet&) = delete;

  // Each label is a value of the enum that metric_labels.h has for it, in the table's order.
  // REQUIRES: the set has the metric, and the metric has these labels.

  // Adds to a counter. REQUIRES: amount >= 0.
  template <typename... Labels>
  void Add(Metric metric, int64_t amount, Labels... labels) {
    At(metric, labels...).fetch_add(amount, std::memory_order_relaxed);
  }
  // Sets a gauge, or a counter that another object counts.
  template <typename... Labels>
  void Set(Metric metric, int64_t cells, Labels... labels) {
    At(metric, labels...).store(cells, std::memory_order_relaxed);
  }
  // Adds an observation to a histogram, `times` times.
  template <typename... Labels>
  void Observe(Metric metric, int64_t cells, Labels... labels) {
    ObserveAt(metric, PlaceOf(labels...), cells, 1);
  }
  template <typename... Labels>
  void ObserveTimes(Metric metric, int64_t cells, int64_t times, Labels... labels) {
    ObserveAt(metric, PlaceOf(labels...), cells, times);
  }
  // Sets the label values of an info metric; its value is then 1.
  void SetInfo(Metric metric, std::vector<std::string> values);

  // Returns the present value of a counter or gauge in cells.
  template <typename... Labels>
  int64_t Cells(Metric metric, Labels... labels) {
    return At(metric, labels...).load(std::memory_order_relaxed);
  }

  // Returns all metrics with their values, in the table's order. An info metric without values is
  // left out.
  std::vector<MetricFamily> Read() const;

 private:
  using Cell = std::atomic<int64_t>;
  // Label values as numbers.
  using Place = std::array<int32_t, MetricDeclaration::kMostLabels>;
  static constexpr int32_t kNotHere = -1;

  template <typename... Labels>
  static Place PlaceOf(Labels... labels) {
    static_assert(sizeof...(labels) <= MetricDeclaration::kMostLabels);
    Place place;
    place.fill(kNotHere);
    size_t i = 0;
    ((place[i++] = static_cast<int32_t>(labels)), ...);
    return place;
  }
  template <typename... Labels>
  Cell& At(Metric metric, Labels... labels) {
    return cells_[FirstCell(metric, PlaceOf(labels...))];
  }
  // Returns the first cell of a series.
  size_t FirstCell(Metric metric, const Place& place) const;
  void ObserveAt(Metric metric, const Place& place, int64_t cells, int64_t times);
  bool Has(Metric metric) const { return first_[static_cast<size_t>(metric)] != kNotHere; }
  void ReadSeries(const MetricDeclaration& declaration, const Place& place,
                  MetricFamily& family) const;

  std::array<int32_t, kMetrics> first_;  // cell of each metric; kNotHere: the set lacks it
  std::unique_ptr<Cell[]> cells_;
  mutable std::mutex info_mutex_;
  absl::flat_hash_map<Metric, std::vector<std::string>> info_;  // guarded by info_mutex_
};

}  // namespace baton
