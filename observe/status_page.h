// The files of the status page in observe/page/, embedded at build time (observe/page/embed.cmake).
//
// Thread safety: constants.
#pragma once

#include <span>
#include <string_view>

namespace baton {

struct PageFile {
  std::string_view path;  // under which it is served
  std::string_view content_type;
  std::string_view content;
};

std::span<const PageFile> StatusPageFiles();

// Allows files of this port, and nothing else: no inline script or style, no other host, no frame
// around the page.
inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace baton
