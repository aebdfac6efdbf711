// `baton certs`: makes certificates for a trial of encryption.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/outcome.h"
#include "common/exit_code.h"
#include "common/str_cat.h"
#include "security/trial_certificates.h"

namespace baton {
namespace {

constexpr char kFilesHelp[] =
    "Files: ca.crt and ca.key are the authority. router.pem, worker.pem, operator.pem and "
    "client.pem\neach have a key and its certificate. Use one of them for --tls-cert, and "
    "ca.crt for --tls-ca.\nFor production, take certificates from an authority whose key is "
    "protected.";

// A subcommand of `baton certs`.
struct CertsSubcommand {
  const char* name;
  const char* help;
  absl::Status (*make)(const TrialCertificateOptions&);
  // What happens without the option.
  const char* without_name;
  const char* without_tenant;
};

constexpr CertsSubcommand kSubcommands[] = {
    {.name = "new",
     .help = "Make an authority, and a certificate for each role",
     .make = &MakeTrialCertificates,
     .without_name = "localhost, 127.0.0.1 and ::1",
     .without_tenant = "none"},
    {.name = "renew",
     .help = "Replace the certificates and keep the authority",
     .make = &RenewTrialCertificates,
     .without_name = "those of the present certificate",
     .without_tenant = "that of the present certificate"},
};

struct CertsOptions {
  TrialCertificateOptions trial;
  std::vector<std::string> names;     // empty: not given
  std::optional<std::string> tenant;  // absent: not given
};

int Make(const CertsOptions& options, absl::Status (*make)(const TrialCertificateOptions&)) {
  TrialCertificateOptions trial = options.trial;
  if (!options.names.empty()) trial.router_names = options.names;
  trial.tenant = options.tenant;
  if (absl::Status status = make(trial); !status.ok()) return ReportError(status);
  std::fprintf(stderr, "certificates in %s, valid for %d days\n", trial.directory.c_str(),
               trial.days);
  return kExitSuccess;
}

void AddMakeCommand(CommandLine& certs, const CertsSubcommand& subcommand) {
  CommandLine& command = certs.AddCommand(subcommand.name, subcommand.help);
  auto options = std::make_shared<CertsOptions>();
  command.Add("DIR", &options->trial.directory, "Folder for the files").Value("FOLDER").Required();
  command
      .Add("--name", &options->names,
           StrCat("DNS name or IP address at which clients reach the router. Without it: ",
                  subcommand.without_name))
      .TakesOne();
  command
      .Add("--tenant", &options->tenant,
           StrCat("Tenant of the client's certificate. Without it: ", subcommand.without_tenant))
      .Value("NAME");
  command.Add("--days", &options->trial.days, "How long the certificates are valid")
      .Range(1, 825)
      .ShowDefault();
  command.AddHelpText(kFilesHelp);
  command.OnRun([options, make = subcommand.make] { return Make(*options, make); });
}

}  // namespace

void AddCertsCommand(CommandLine& line) {
  CommandLine& certs = line.AddCommand("certs", "Make certificates to try encryption");
  for (const CertsSubcommand& subcommand : kSubcommands) AddMakeCommand(certs, subcommand);
}

}  // namespace baton
