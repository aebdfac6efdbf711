// What a user reads about a wrong file of --config.
//
// Thread safety: pure function.
#pragma once

#include <string>
#include <string_view>

namespace baton {

// `what`: CLI11's message. It calls every file INI, and names a wrong line without the reason.
std::string ConfigFileMessage(const std::string& file, std::string_view what);

}  // namespace baton
