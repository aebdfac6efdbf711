#include "loadtest/svg_chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace baton {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 260;
constexpr double kLeft = 56;
constexpr double kRight = 16;
constexpr double kTop = 12;
constexpr double kBottom = 40;
constexpr int kColours = 9;
constexpr size_t kMostPoints = 1200;  // more are not visible

struct ChartScale {
  double low = 0;
  double high = 1;
  double begin = 0;  // pixels
  double end = 1;
  bool log = false;

  double At(double value) const {
    const double l = log ? std::log10(low) : low;
    const double h = log ? std::log10(high) : high;
    const double v = log ? std::log10(std::max(value, low)) : value;
    return begin + (end - begin) * (h > l ? (v - l) / (h - l) : 0.5);
  }
};

// Values at which an axis has a label.
std::vector<double> AxisTicks(const ChartScale& scale) {
  std::vector<double> ticks;
  if (scale.log) {
    for (double power = std::pow(10, std::floor(std::log10(scale.low)));
         power <= scale.high * 1.001; power *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double value = power * factor;
        if (value >= scale.low && value <= scale.high * 1.001) ticks.push_back(value);
      }
    }
    if (ticks.size() > 10) {  // many decades: only the powers of ten
      std::erase_if(ticks, [](double value) {
        const double exponent = std::log10(value);
        return std::abs(exponent - std::round(exponent)) > 1e-6;
      });
    }
    return ticks;
  }
  const double raw = (scale.high - scale.low) / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) {
      step = factor * power;
      break;
    }
  }
  for (int i = 0; i <= 12; ++i) {
    const double value = (std::ceil(scale.low / step) + i) * step;
    if (value > scale.high + step / 1000) break;
    ticks.push_back(value);
  }
  return ticks;
}

std::string SvgText(double x, double y, const char* anchor, std::string_view text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>", x, y, anchor,
                         HtmlEscaped(text));
}

std::string SvgLine(double x1, double y1, double x2, double y2, const char* name) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>", x1,
                         y1, x2, y2, name);
}

std::string FigureBegin(const std::string& title, double height) {
  return absl::StrFormat(
      "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" "
      "aria-label=\"%s\">",
      HtmlEscaped(title), kWidth, height, HtmlEscaped(title));
}

std::string LegendEntry(size_t colour, std::string_view name) {
  return absl::StrFormat("<li><span class=\"b%d\"></span>%s</li>",
                         static_cast<int>(colour % kColours), HtmlEscaped(name));
}

std::string SeriesPath(const ChartSeries& series, const ChartScale& x, const ChartScale& y,
                       size_t colour) {
  std::string path;
  std::string dots;
  const size_t stride = 1 + series.points.size() / kMostPoints;
  for (size_t i = 0; i < series.points.size(); ++i) {
    if (i % stride != 0 && i + 1 < series.points.size()) continue;
    const double px = x.At(series.points[i].first);
    const double py = y.At(series.points[i].second);
    if (path.empty()) {
      absl::StrAppendFormat(&path, "M%.1f %.1f", px, py);
    } else if (series.steps) {
      absl::StrAppendFormat(&path, "H%.1fV%.1f", px, py);
    } else {
      absl::StrAppendFormat(&path, "L%.1f %.1f", px, py);
    }
    if (!series.dots) continue;
    absl::StrAppendFormat(
        &dots,
        "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" class=\"b%d\"><title>%s; %s</title></circle>", px,
        py, static_cast<int>(colour % kColours), ShortNumber(series.points[i].first),
        ShortNumber(series.points[i].second));
  }
  return absl::StrFormat("<path d=\"%s\" class=\"s%d\"/>%s", path,
                         static_cast<int>(colour % kColours), dots);
}

std::string ChartAxes(const ChartOptions& options, const ChartScale& x, const ChartScale& y) {
  std::string out;
  for (const double tick : AxisTicks(y)) {
    absl::StrAppend(&out, SvgLine(kLeft, y.At(tick), kWidth - kRight, y.At(tick), "grid"),
                    SvgText(kLeft - 6, y.At(tick) + 4, "end", ShortNumber(tick)));
  }
  for (const double tick : AxisTicks(x)) {
    absl::StrAppend(&out, SvgLine(x.At(tick), kTop, x.At(tick), kHeight - kBottom, "grid"),
                    SvgText(x.At(tick), kHeight - kBottom + 16, "middle", ShortNumber(tick)));
  }
  for (const auto& [value, label] : options.x_marks) {
    if (value < x.low || value > x.high) continue;
    absl::StrAppend(&out, SvgLine(x.At(value), kTop, x.At(value), kHeight - kBottom, "mark"),
                    SvgText(x.At(value) + 4, kTop + 12, "start", label));
  }
  absl::StrAppend(&out,
                  SvgText((kLeft + kWidth - kRight) / 2, kHeight - 6, "middle", options.x_label),
                  SvgText(4, kTop + 2, "start", options.y_label));
  return out;
}

}  // namespace

std::string HtmlEscaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string ShortNumber(double value) {
  const double size = std::abs(value);
  if (size >= 100) return absl::StrFormat("%.0f", value);
  if (size >= 10) return absl::StrFormat("%.4g", value);
  return absl::StrFormat("%.3g", value);
}

std::string LineChart(const ChartOptions& options, const std::vector<ChartSeries>& series) {
  ChartScale x = {.begin = kLeft, .end = kWidth - kRight, .log = options.log_x};
  ChartScale y = {.low = 0, .high = 0, .begin = kHeight - kBottom, .end = kTop};
  bool has_points = false;
  for (const ChartSeries& one : series) {
    for (const auto& [px, py] : one.points) {
      if (options.log_x && px <= 0) continue;
      x.low = has_points ? std::min(x.low, px) : px;
      x.high = has_points ? std::max(x.high, px) : px;
      y.high = std::max(y.high, py);
      has_points = true;
    }
  }
  std::string out = FigureBegin(options.title, kHeight);
  if (!has_points) {
    return absl::StrCat(out, SvgText(kWidth / 2, kHeight / 2, "middle", "no values"),
                        "</svg></figure>\n");
  }
  if (x.high <= x.low) x.high = x.low > 0 ? x.low * 1.1 : x.low + 1;
  if (y.high <= 0) y.high = 1;
  absl::StrAppend(&out, ChartAxes(options, x, y));
  for (size_t i = 0; i < series.size(); ++i) {
    if (!series[i].points.empty()) absl::StrAppend(&out, SeriesPath(series[i], x, y, i));
  }
  absl::StrAppend(&out, "</svg><ul class=\"legend\">");
  for (size_t i = 0; i < series.size(); ++i) absl::StrAppend(&out, LegendEntry(i, series[i].name));
  return absl::StrCat(out, "</ul></figure>\n");
}

std::string StackedBars(const std::string& title, const std::string& unit,
                        const std::vector<BarRow>& rows) {
  constexpr double kRowHeight = 34;
  constexpr double kNames = 150;
  std::vector<std::string> names;
  double longest = 0;
  for (const BarRow& row : rows) {
    double sum = 0;
    for (const BarPart& part : row.parts) {
      sum += part.value;
      if (std::find(names.begin(), names.end(), part.name) == names.end()) {
        names.push_back(part.name);
      }
    }
    longest = std::max(longest, sum);
  }
  if (longest <= 0) longest = 1;
  const double height = kRowHeight * static_cast<double>(rows.size()) + 8;
  std::string out = FigureBegin(title, height);
  for (size_t i = 0; i < rows.size(); ++i) {
    const double top = 4 + kRowHeight * static_cast<double>(i);
    absl::StrAppend(&out, SvgText(kNames - 8, top + 20, "end", rows[i].name));
    double sum = 0;
    const double scale = (kWidth - kNames - 70) / longest;
    for (const BarPart& part : rows[i].parts) {
      const auto colour = std::find(names.begin(), names.end(), part.name) - names.begin();
      absl::StrAppendFormat(&out,
                            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"24\" "
                            "class=\"b%d\"><title>%s: %s %s</title></rect>",
                            kNames + sum * scale, top, part.value * scale,
                            static_cast<int>(colour % kColours), HtmlEscaped(part.name),
                            ShortNumber(part.value), HtmlEscaped(unit));
      sum += part.value;
    }
    absl::StrAppend(&out, SvgText(kNames + sum * scale + 6, top + 17, "start",
                                  absl::StrCat(ShortNumber(sum), " ", unit)));
  }
  absl::StrAppend(&out, "</svg><ul class=\"legend\">");
  for (size_t i = 0; i < names.size(); ++i) absl::StrAppend(&out, LegendEntry(i, names[i]));
  return absl::StrCat(out, "</ul></figure>\n");
}

}  // namespace baton
