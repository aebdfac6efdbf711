#include "rpc/rpc_access.h"

#include <google/protobuf/descriptor.h>

#include <string_view>

#include "common/str_cat.h"
#include "rpc/status_conversion.h"
#include "security/access_table.h"

namespace baton {
namespace {

constexpr char kPath[] = ":path";
constexpr std::string_view kMethodsWithKeys = "/baton.v1.Inference/";
constexpr char kUris[] = "peer_uri";  // gRPC's name for the URI names of a certificate

Caller CallerOfConnection(const grpc::AuthContext& context) {
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : context.FindPropertyValues(kUris)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  return CallerOfUris(uris);
}

}  // namespace

RpcCaller CallerOfCall(const grpc::ServerContextBase& context) {
  const std::shared_ptr<const grpc::AuthContext> connection = context.auth_context();
  if (connection == nullptr) return {};
  for (const grpc::string_ref& kind :
       connection->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME)) {
    if (kind == "tls" || kind == "ssl") {
      return {.encrypted = true, .caller = CallerOfConnection(*connection)};
    }
  }
  return {};
}

grpc::Status RpcAccessCheck::Process(const InputMetadata& metadata, grpc::AuthContext* context,
                                     OutputMetadata*, OutputMetadata*) {
  const auto path = metadata.find(kPath);
  if (path == metadata.end()) {
    return ToGrpcStatus(absl::UnauthenticatedError("unauthenticated"));
  }
  const std::string_view method(path->second.data(), path->second.size());
  RoleSet roles = CallerOfConnection(*context).roles;
  if (anonymous_ && roles.empty() && method.starts_with(kMethodsWithKeys)) {
    roles = {CallerRole::kClient, CallerRole::kOperator};
  }
  return ToGrpcStatus(CheckAccess(method, roles));
}

absl::Status CheckMethodsHaveRows(const std::vector<std::string>& services) {
  for (const std::string& name : services) {
    const google::protobuf::ServiceDescriptor* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    if (service == nullptr) continue;
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string method = StrCat("/", name, "/", service->method(i)->name());
      if (WhoMayCall(method).has_value()) continue;
      return absl::InternalError(
          StrCat(method, " has no row in security/access_table.cc, so no role may call it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
