#include "kernels/ops.h"

#include <span>
#include <vector>

#include "common/crc32c.h"

namespace baton {

std::string_view WeightFormatName(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "F32";
    case WeightFormat::kF16:
      return "F16";
    case WeightFormat::kBF16:
      return "BF16";
    case WeightFormat::kQ8_0:
      return "Q8_0";
    case WeightFormat::kQ4_0:
      return "Q4_0";
    case WeightFormat::kQ4_1:
      return "Q4_1";
    case WeightFormat::kQ5_0:
      return "Q5_0";
    case WeightFormat::kQ5_1:
      return "Q5_1";
    case WeightFormat::kQ4_K:
      return "Q4_K";
    case WeightFormat::kQ5_K:
      return "Q5_K";
    case WeightFormat::kQ6_K:
      return "Q6_K";
  }
  return "unknown";
}

void Ops::CopyRuns(Stream& stream, const CopyRunsArgs& args) const {
  for (const ByteRun& run : args.runs) {
    stream.Copy(args.to + run.to, args.from + run.from, static_cast<size_t>(run.bytes));
  }
  if (args.checksums == nullptr) return;
  stream.Call([to = args.to, checksums = args.checksums,
               runs = std::vector<ByteRun>(args.runs.begin(), args.runs.end())] {
    for (size_t i = 0; i < runs.size(); ++i) {
      checksums[i] = Crc32c(std::span(to + runs[i].to, static_cast<size_t>(runs[i].bytes)));
    }
  });
}

void Ops::CopyRows(Stream& stream, const CopyRowsArgs& args) const {
  for (const ByteRows& run : args.runs) {
    for (int64_t row = 0; row < run.rows; ++row) {
      stream.Copy(args.to + run.to + row * run.to_stride,
                  args.from + run.from + row * run.from_stride, static_cast<size_t>(run.bytes));
    }
  }
}

}  // namespace baton
