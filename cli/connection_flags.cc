#include "cli/connection_flags.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/ascii.h"
#include "cli/input_file.h"
#include "common/status_macros.h"
#include "common/str_cat.h"
#include "security/api_key_file.h"
#include "security/tls_context.h"

namespace baton {
namespace {

constexpr size_t kMaxKeyFileBytes = size_t{64} << 10;

}  // namespace

void AddConnectionFlags(CommandLine& command, ConnectionFlags* flags) {
  command
      .Add("--tls-ca", &flags->tls.authorities,
           "PEM file with the authorities of the service's certificates. Turns encryption on")
      .Value("FILE")
      .FromEnvironment()
      .Group("Connection");
  command
      .Add("--tls-cert", &flags->tls.certificate,
           "PEM file with this client's certificate, for services that ask for one")
      .Value("FILE")
      .FromEnvironment()
      .Group("Connection");
  command
      .Add("--tls-key", &flags->tls.key,
           "PEM file with that certificate's key. Without it, the key is in the file of --tls-cert")
      .Value("FILE")
      .FromEnvironment()
      .Group("Connection");
  command
      .Add("--api-key-file", &flags->api_key_file,
           "File with an API key in its first line, for services that ask for one")
      .Value("FILE")
      .FromEnvironment()
      .Group("Connection");
}

absl::Status CheckConnectionFlags(const ConnectionFlags& flags) {
  const TlsFiles& tls = flags.tls;
  if (!tls.any()) return absl::OkStatus();
  if (tls.authorities.empty()) {
    return absl::InvalidArgumentError("--tls-cert and --tls-key need --tls-ca");
  }
  if (tls.certificate.empty() && !tls.key.empty()) {
    return absl::InvalidArgumentError("--tls-key needs --tls-cert");
  }
  return TlsContext::Load(tls, {.side = TlsSide::kClient, .verify_peer = true}).status();
}

absl::StatusOr<std::string> ReadApiKey(const ConnectionFlags& flags) {
  if (flags.api_key_file.empty()) return std::string();
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(flags.api_key_file));
  ASSIGN_OR_RETURN(const std::string text, file.ReadAll(kMaxKeyFileBytes));
  constexpr std::string_view kBlanks = " \t\r\n";
  std::string key = text.substr(0, text.find('\n'));
  key.erase(0, std::min(key.size(), key.find_first_not_of(kBlanks)));
  key.erase(key.find_last_not_of(kBlanks) + 1);
  if (key.empty() || key.size() > kMaxApiKeyBytes) {
    return absl::InvalidArgumentError(StrCat("--api-key-file ", flags.api_key_file,
                                             ": the first line has ", key.size(),
                                             " bytes, a key has 1 to ", kMaxApiKeyBytes));
  }
  // A key travels in a header line, where other bytes would end it or change its meaning.
  const auto bad =
      std::find_if(key.begin(), key.end(), [](unsigned char c) { return !absl::ascii_isgraph(c); });
  if (bad != key.end()) {
    return absl::InvalidArgumentError(
        StrCat("--api-key-file ", flags.api_key_file, ": byte ", bad - key.begin(),
               " of the key has the value ", static_cast<int>(static_cast<unsigned char>(*bad)),
               ", a key has only visible ASCII characters (values 33 to 126)"));
  }
  return key;
}

}  // namespace baton
