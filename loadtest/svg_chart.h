// Charts as SVG text for an HTML page. They need no script and no external asset. Every text that
// goes into them is escaped. Colours come from the page's style sheet, by the classes s0 to s8 and
// b0 to b8.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton {

// Escapes text for the content and for quoted attributes of HTML and SVG.
std::string HtmlEscaped(std::string_view text);
// A number with about three significant digits: "0.123", "12.3", "12300".
std::string ShortNumber(double value);

struct ChartSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;  // in order of x
  bool steps = false;  // horizontal to the next point, as a distribution needs it
  bool dots = false;   // marks each point
};

struct ChartOptions {
  std::string title;  // also read aloud by screen readers
  std::string x_label;
  std::string y_label;
  bool log_x = false;  // points with x <= 0 are drawn at the left edge
  std::vector<std::pair<double, std::string>> x_marks;  // vertical lines with a label
};

// Returns a <figure> with the chart and a legend. Without points it says so.
std::string LineChart(const ChartOptions& options, const std::vector<ChartSeries>& series);

struct BarPart {
  std::string name;
  double value = 0;  // >= 0
};
struct BarRow {
  std::string name;
  std::vector<BarPart> parts;  // equal names have equal colours in all rows
};

// Returns a <figure> with one bar of parts for each row, on one scale.
std::string StackedBars(const std::string& title, const std::string& unit,
                        const std::vector<BarRow>& rows);

}  // namespace baton
