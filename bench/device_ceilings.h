// What a device reaches at most: bandwidths of a copy and of a kernel that only reads.
//
// Thread safety: pure functions of a DeviceBench.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/device_bench.h"
#include "bench/read_bytes_params.h"

namespace baton {

struct Bandwidths {
  WorkTime copy, read;
  double copy_bytes_s = 0, read_bytes_s = 0;  // a copied byte counts twice
};

// Measures with two buffers of `bytes` bytes. REQUIRES: the kernel library has the benchmarks'
// kernels.
inline Bandwidths MeasureBandwidths(DeviceBench& bench, size_t bytes) {
  const auto from = bench.Filled(bytes);
  const auto to = bench.Filled(bytes);
  Bandwidths found;
  found.copy = bench.InGraph(2, [&](int) { bench.stream().Copy(to->data(), from->data(), bytes); });
  const ReadBytesParams params = {from->data(), static_cast<int64_t>(bytes / 16),
                                  to->as<uint32_t>()};
  const auto blocks = static_cast<uint32_t>(8 * bench.launcher().multiprocessors());
  found.read = bench.InGraph(2, [&](int) {
    bench.launcher().Launch("baton_read_bytes", {{blocks, 1, 1}, {kReadThreads, 1, 1}, 0}, &params,
                            sizeof(params));
  });
  found.copy_bytes_s = 2.0 * static_cast<double>(bytes) / found.copy.median_s;
  found.read_bytes_s = static_cast<double>(bytes) / found.read.median_s;
  return found;
}

}  // namespace baton
