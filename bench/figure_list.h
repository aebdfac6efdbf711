// Figures of one benchmark run. The last line of a benchmark's output is this list as JSON:
//   {"bench": "index", "seed": 1, "conditions": ["…"],
//    "figures": [{"name": …, "value": …, "unit": …, "limit": …, "ratio": value / limit}, …]}
// The names are stable: scripts compare figures of different builds by name.
//
// - `limit` and `ratio` are null if the figure has no limit.
// - A figure that was not measured has the value null, and the reason under `absent`.
// - `conditions` are sentences about the run that a reader must know to judge the figures, such as
//   a load generator that shares the processors with the measured code.
//
// Thread safety: belongs to one thread.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

class FigureList {
 public:
  // Returns the figure's JSON object, to which the caller may add keys of its own. The reference
  // is valid until the next call.
  nlohmann::json& Add(const std::string& name, double value, const std::string& unit,
                      std::optional<double> limit = std::nullopt) {
    const bool has_ratio = limit.value_or(0) != 0;
    return figures_.emplace_back(
        nlohmann::json{{"name", name},
                       {"value", value},
                       {"unit", unit},
                       {"limit", limit ? nlohmann::json(*limit) : nlohmann::json()},
                       {"ratio", has_ratio ? nlohmann::json(value / *limit) : nlohmann::json()}});
  }

  // Adds a figure that was not measured, and prints a line with the reason ("iperf3 is not
  // installed").
  void AddAbsent(const std::string& name, const std::string& unit, std::string_view reason) {
    const std::string text = "not measured: " + std::string(reason);
    std::printf("%-32s %s\n", name.c_str(), text.c_str());
    figures_.push_back({{"name", name},
                        {"value", nullptr},
                        {"unit", unit},
                        {"limit", nullptr},
                        {"ratio", nullptr},
                        {"absent", text}});
  }

  // Adds and prints a condition of the run.
  void AddCondition(const std::string& sentence) {
    std::printf("%s\n", sentence.c_str());
    conditions_.push_back(sentence);
  }

  nlohmann::json ToJson(std::string_view bench, int64_t seed) const {
    return {{"bench", bench}, {"seed", seed}, {"conditions", conditions_}, {"figures", figures_}};
  }
  void Print(std::string_view bench, int64_t seed) const {
    std::printf("%s\n", ToJson(bench, seed).dump().c_str());
    std::fflush(stdout);
  }

 private:
  nlohmann::json figures_ = nlohmann::json::array();
  nlohmann::json conditions_ = nlohmann::json::array();
};

}  // namespace baton
