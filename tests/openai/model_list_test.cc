#include "openai/model_list.h"

#include <gtest/gtest.h>

#include <vector>

namespace baton {
namespace {

TEST(ModelList, AModelHasOpenAisFieldsAndItsContext) {
  EXPECT_EQ(
      ModelBody({.id = "smol", .created = 12, .context_length = 8192}),
      R"({"id":"smol","object":"model","created":12,"owned_by":"baton","max_model_len":8192})");
  EXPECT_EQ(ModelBody({.id = "a\"b"}),
            R"({"id":"a\"b","object":"model","created":0,"owned_by":"baton"})");
}

TEST(ModelList, AListHasEveryModel) {
  const std::vector<ListedModel> models = {{.id = "a"}, {.id = "b"}};
  EXPECT_EQ(
      ModelListBody(models),
      R"({"object":"list","data":[{"id":"a","object":"model","created":0,"owned_by":"baton"},)"
      R"({"id":"b","object":"model","created":0,"owned_by":"baton"}]})");
  EXPECT_EQ(ModelListBody({}), R"({"object":"list","data":[]})");
}

}  // namespace
}  // namespace baton
