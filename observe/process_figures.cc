#include "observe/process_figures.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace baton {
namespace {

constexpr int64_t kMicroseconds = 1'000'000;

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Microseconds since 1970 at which the machine started.
int64_t BootUs() {
  std::istringstream lines(ReadFile("/proc/stat"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("btime ")) return std::atoll(line.c_str() + 6) * kMicroseconds;
  }
  return 0;
}

int64_t OpenDescriptors() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int64_t entries = 0;
  while (readdir(directory) != nullptr) ++entries;
  closedir(directory);
  return std::max<int64_t>(0, entries - 3);  // without ".", ".." and the directory itself
}

}  // namespace

ProcessFigures ReadProcessFigures() {
  ProcessFigures out;
  const std::string stat = ReadFile("/proc/self/stat");
  // The name of the program is in parentheses and may have blanks.
  const size_t name_end = stat.rfind(')');
  if (name_end != std::string::npos) {
    std::istringstream fields(stat.substr(name_end + 1));
    const std::vector<std::string> words{std::istream_iterator<std::string>(fields),
                                         std::istream_iterator<std::string>()};
    // Places in proc(5), minus the two fields before these and one for counting from 0.
    const auto field = [&](size_t place) -> int64_t {
      return place - 3 < words.size() ? std::atoll(words[place - 3].c_str()) : 0;
    };
    const int64_t ticks = std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
    out.cpu_us = (field(14) + field(15)) * kMicroseconds / ticks;
    out.threads = field(20);
    static const int64_t boot_us = BootUs();
    out.started_us = boot_us + field(22) * kMicroseconds / ticks;
    out.virtual_bytes = field(23);
    out.resident_bytes = field(24) * sysconf(_SC_PAGESIZE);
  }
  out.open_fds = OpenDescriptors();
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) out.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return out;
}

void SetProcessMetrics(const ProcessFigures& figures, MetricSet& metrics) {
  metrics.Set(Metric::kProcessCpu, figures.cpu_us);
  metrics.Set(Metric::kProcessStart, figures.started_us);
  metrics.Set(Metric::kProcessResident, figures.resident_bytes);
  metrics.Set(Metric::kProcessVirtual, figures.virtual_bytes);
  metrics.Set(Metric::kProcessOpenFds, figures.open_fds);
  metrics.Set(Metric::kProcessMaxFds, figures.max_fds);
  metrics.Set(Metric::kProcessThreads, figures.threads);
}

}  // namespace baton
