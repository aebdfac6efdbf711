#include "http/http_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;

HttpRoute Route(std::string method, std::string path, std::string content_type = "") {
  return {.method = std::move(method),
          .path = std::move(path),
          .handler = nullptr,
          .max_body_bytes = 0,
          .content_type = std::move(content_type)};
}

HttpRequest Request(std::string method, std::string path, std::vector<HttpHeader> headers = {}) {
  return {.id = "",
          .method = std::move(method),
          .path = std::move(path),
          .query = "",
          .headers = std::move(headers),
          .body = ""};
}

class HttpRoutesTest : public ::testing::Test {
 protected:
  HttpRoutesTest() {
    routes_.Add(Route("GET", "/models"));
    routes_.Add(Route("GET", "/models/"));
    routes_.Add(Route("POST", "/chat", "application/json"));
    routes_.Add(Route("GET", "/"));
  }
  std::string PathOf(const HttpRequest& request) const {
    const HttpRoutes::Found found = routes_.Find(request);
    return found.route == nullptr ? "" : found.route->path;
  }

  HttpRoutes routes_;
};

TEST_F(HttpRoutesTest, APathThatEndsInASlashServesLongerPaths) {
  EXPECT_EQ(PathOf(Request("GET", "/models")), "/models");
  EXPECT_EQ(PathOf(Request("GET", "/models/a/b")), "/models/");
  EXPECT_EQ(PathOf(Request("GET", "/models/")), "");
  EXPECT_EQ(PathOf(Request("GET", "/modelsx")), "");
  EXPECT_EQ(PathOf(Request("GET", "/")), "/");
  EXPECT_EQ(PathOf(Request("GET", "/other")), "");
}

TEST_F(HttpRoutesTest, AnUnknownPathIsNotFoundAndAnotherMethodIsNotAllowed) {
  EXPECT_EQ(routes_.Find(Request("GET", "/other")).problem.status, 404);
  const HttpRoutes::Found found = routes_.Find(Request("DELETE", "/models"));
  EXPECT_EQ(found.problem.status, 405);
  EXPECT_EQ(found.allow, "GET, HEAD");
  EXPECT_THAT(found.problem.message, HasSubstr("DELETE"));
  EXPECT_EQ(routes_.Find(Request("HEAD", "/chat")).problem.status, 405);
}

TEST_F(HttpRoutesTest, AGetAlsoServesHead) {
  EXPECT_EQ(PathOf(Request("HEAD", "/models")), "/models");
}

TEST_F(HttpRoutesTest, AnotherTypeOfBodyIsRefused) {
  EXPECT_EQ(PathOf(Request("POST", "/chat")), "/chat");
  EXPECT_EQ(PathOf(Request("POST", "/chat", {{"content-type", "Application/JSON; charset=utf-8"}})),
            "/chat");
  const HttpRoutes::Found found =
      routes_.Find(Request("POST", "/chat", {{"Content-Type", "text/plain"}}));
  EXPECT_EQ(found.problem.status, 415);
  const HttpRoutes::Found zipped =
      routes_.Find(Request("POST", "/chat", {{"Content-Encoding", "gzip"}}));
  EXPECT_EQ(zipped.problem.status, 415);
  EXPECT_EQ(zipped.problem.message,
            "Content-Encoding is \"gzip\"; this path takes bodies without a coding");
  EXPECT_NE(routes_.Find(Request("POST", "/chat", {{"Content-Encoding", "identity"}})).route,
            nullptr);
  EXPECT_EQ(found.problem.message,
            "Content-Type is \"text/plain\"; this path needs the header Content-Type: "
            "application/json");
}

}  // namespace
}  // namespace baton
