// Tests who may call what, with scripted engines: API keys over HTTP and gRPC, and the access table
// against the services that servers really have.

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/host_port.h"
#include "security/access_table.h"
#include "security/api_key_file.h"
#include "tests/e2e/service_fixture.h"
#include "tests/http/raw_http_client.h"
#include "tests/rpc/tls_server.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

constexpr char kBody[] = R"({"prompt": "ab", "max_tokens": 1})";

class ServiceAccessTest : public ServiceTest {
 protected:
  ServiceAccessTest() : ServiceTest({.listen = "127.0.0.1:0"}, {}, WriteKeys()) {
    AddDecode();
    EXPECT_TRUE(Eventually([this] { return router_->Tick(); }));
  }
  ~ServiceAccessTest() override { std::remove(api_keys_.c_str()); }

  static std::string WriteKeys() {
    std::string path = absl::StrCat(::testing::TempDir(), "service_access_", getpid());
    std::ofstream file(path);
    for (const std::string key : {"good", "late"}) {
      ApiKeyEntry entry;
      entry.id = key;
      entry.digest = DigestOfKey(key);
      entry.tenant = "acme";
      if (key == "late") entry.expires_s = 1;
      file << FormatApiKey(entry);
    }
    return path;
  }
  RawHttpAnswer Ask(const std::string& method, const std::string& path, const std::string& key,
                    const std::string& body = "") {
    const std::string header =
        key.empty() ? "" : absl::StrCat("Authorization: Bearer ", key, "\r\n");
    return RawHttpClient(ParseHostPort(router_->http()->address())->port)
        .Ask(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: h\r\n", header,
                          "Content-Length: ", body.size(), "\r\n\r\n", body));
  }
};

TEST_F(ServiceAccessTest, HttpNeedsAKeyExceptForHealth) {
  EXPECT_EQ(Ask("POST", "/v1/completions", "good", kBody).status, 200);
  EXPECT_EQ(Ask("GET", "/v1/models", "good").status, 200);
  EXPECT_EQ(Ask("GET", "/health", "").status, 200);
  for (const char* key : {"", "wrong", "late"}) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
      const RawHttpAnswer answer = Ask("POST", path, key, kBody);
      EXPECT_EQ(answer.status, 401) << key << path;
      EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
      EXPECT_THAT(answer.body, HasSubstr(R"("message":"unauthenticated")"));
    }
    EXPECT_EQ(Ask("GET", "/v1/models", key).status, 401) << key;
    EXPECT_EQ(Ask("GET", "/v1/models/m", key).status, 401) << key;
  }
}

TEST_F(ServiceAccessTest, TheTenantIsTheKeys) {
  const auto body = [](const std::string& tenant) {
    return absl::StrCat(R"({"prompt": "ab", "max_tokens": 1, "tenant": ")", tenant, R"("})");
  };
  EXPECT_EQ(Ask("POST", "/v1/completions", "good", body("acme")).status, 200);
  const RawHttpAnswer refused = Ask("POST", "/v1/completions", "good", body("other"));
  EXPECT_EQ(refused.status, 403);
  EXPECT_THAT(refused.body, HasSubstr("tenant is"));
}

TEST_F(ServiceAccessTest, GrpcReadsNoKeyWithoutEncryption) {
  v1::GenerateRequest request;
  request.set_prompt("ab");
  request.set_api_key("good");
  grpc::ClientContext context;
  const auto reader = stub_->Generate(&context, request);
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(status.error_message(), "unauthenticated");
}

// Returns the names of all services of a server, by reflection.
std::vector<std::string> ServicesOf(const std::string& address) {
  grpc::GenericStub stub(MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(DeadlineIn(20'000));
  grpc::CompletionQueue queue;
  void* tag = nullptr;
  bool ok = false;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  const grpc::Slice list(std::string("\x3a\x00", 2));  // list_services = ""
  call->WriteLast(grpc::ByteBuffer(&list, 1), grpc::WriteOptions(), nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  grpc::Slice bytes;
  EXPECT_TRUE(answer.DumpToSingleSlice(&bytes).ok());
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  // ServerReflectionResponse.list_services_response (6) .service (1) .name (1)
  std::vector<std::string> names;
  google::protobuf::UnknownFieldSet response;
  EXPECT_TRUE(response.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())));
  for (int i = 0; i < response.field_count(); ++i) {
    if (response.field(i).number() != 6) continue;
    google::protobuf::UnknownFieldSet services;
    EXPECT_TRUE(services.ParseFromString(response.field(i).length_delimited()));
    for (int k = 0; k < services.field_count(); ++k) {
      google::protobuf::UnknownFieldSet service;
      EXPECT_TRUE(service.ParseFromString(services.field(k).length_delimited()));
      for (int n = 0; n < service.field_count(); ++n) {
        if (service.field(n).number() == 1) names.push_back(service.field(n).length_delimited());
      }
    }
  }
  return names;
}

TEST_F(ServiceAccessTest, EveryMethodOfEveryServerHasARow) {
  FakeWorker& worker = AddWorker(v1::WORKER_ROLE_BOTH);
  std::vector<std::string> services = ServicesOf(router_->rpc().address());
  EXPECT_THAT(services, IsSupersetOf({"baton.v1.Inference", "baton.v1.Registry"}));
  const std::vector<std::string> of_worker = ServicesOf(worker.address());
  EXPECT_THAT(of_worker,
              IsSupersetOf({"baton.v1.Worker", "baton.v1.PrefillWorker", "baton.v1.DecodeWorker"}));
  services.insert(services.end(), of_worker.begin(), of_worker.end());
  for (const std::string& name : services) {
    const google::protobuf::ServiceDescriptor* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(name);
    if (service == nullptr) {
      EXPECT_EQ(name, "grpc.health.v1.Health") << "a service without description";
      EXPECT_TRUE(WhoMayCall("/grpc.health.v1.Health/Check").has_value());
      EXPECT_TRUE(WhoMayCall("/grpc.health.v1.Health/Watch").has_value());
      continue;
    }
    for (int i = 0; i < service->method_count(); ++i) {
      const std::string method = absl::StrCat("/", name, "/", service->method(i)->name());
      EXPECT_TRUE(WhoMayCall(method).has_value()) << method << " has no row";
    }
  }
}

}  // namespace
}  // namespace baton
