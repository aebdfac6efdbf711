#include "cli/terminal.h"

#include <unistd.h>

#include <cstdlib>

namespace baton {
namespace {

std::string Styled(std::string_view begin, std::string_view text, bool colours) {
  if (!colours) return std::string(text);
  std::string out(begin);
  out += text;
  out += "\033[0m";
  return out;
}

std::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

}  // namespace

bool TakesEscapes(int fd) {
  const std::string_view terminal = Variable("TERM");
  return isatty(fd) == 1 && !terminal.empty() && terminal != "dumb";
}

bool UsesColours(int fd) { return TakesEscapes(fd) && Variable("NO_COLOR").empty(); }

std::string Bold(std::string_view text, bool colours) { return Styled("\033[1m", text, colours); }
std::string Dim(std::string_view text, bool colours) { return Styled("\033[2m", text, colours); }
std::string Red(std::string_view text, bool colours) { return Styled("\033[31m", text, colours); }

}  // namespace baton
