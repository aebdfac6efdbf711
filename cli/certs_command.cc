// `baton certs`: makes certificates for a trial of encryption.

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/outcome.h"
#include "common/exit_code.h"
#include "security/trial_certificates.h"

namespace baton {
namespace {

constexpr char kFilesHelp[] =
    "Files: ca.crt and ca.key are the authority. router.pem, worker.pem, operator.pem and "
    "client.pem\neach have a key and its certificate. Use one of them for --tls-cert, and "
    "ca.crt for --tls-ca.\nFor production, take certificates from an authority whose key is "
    "protected.";

struct CertsOptions {
  TrialCertificateOptions trial;
  std::vector<std::string> names;  // empty: the defaults of `trial`
};

int Make(const CertsOptions& options, absl::Status (*make)(const TrialCertificateOptions&)) {
  TrialCertificateOptions trial = options.trial;
  if (!options.names.empty()) trial.router_names = options.names;
  if (absl::Status status = make(trial); !status.ok()) return ReportError(status);
  std::fprintf(stderr, "certificates in %s, valid for %d days\n", trial.directory.c_str(),
               trial.days);
  return kExitSuccess;
}

void AddMakeCommand(CommandLine& certs, const char* name, const char* help,
                    absl::Status (*make)(const TrialCertificateOptions&)) {
  CommandLine& command = certs.AddCommand(name, help);
  auto options = std::make_shared<CertsOptions>();
  command.Add("DIR", &options->trial.directory, "Folder for the files").Value("FOLDER").Required();
  command
      .Add("--name", &options->names,
           "DNS name or IP address at which clients reach the router. Without it: localhost, "
           "127.0.0.1 and ::1")
      .TakesOne();
  command.Add("--tenant", &options->trial.tenant, "Tenant of the client's certificate")
      .Value("NAME");
  command.Add("--days", &options->trial.days, "How long the certificates are valid")
      .Range(1, 825)
      .ShowDefault();
  command.AddHelpText(kFilesHelp);
  command.OnRun([options, make] { return Make(*options, make); });
}

}  // namespace

void AddCertsCommand(CommandLine& line) {
  CommandLine& certs = line.AddCommand("certs", "Make certificates to try encryption");
  AddMakeCommand(certs, "new", "Make an authority, and a certificate for each role",
                 &MakeTrialCertificates);
  AddMakeCommand(certs, "renew", "Replace the certificates and keep the authority",
                 &RenewTrialCertificates);
}

}  // namespace baton
