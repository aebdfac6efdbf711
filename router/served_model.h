// The model that the fleet serves, as far as the router needs it: its tokenizer, chat template and
// limits.
//
// Thread safety: immutable after creation.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/sampling_defaults.h"
#include "text/prompt_encoder.h"
#include "text/tokenizer.h"

namespace baton {

struct ModelDescription {
  std::string name;
  std::string architecture;
  std::string fingerprint;
  int32_t context_length = 0;  // tokens
  int32_t layers = 0;
  TokenizerSpec tokenizer;
  std::string chat_template;
  SamplingDefaults sampling;  // recommended for conversations; clients read it and send it
};

class ServedModel {
 public:
  // InvalidArgument or Unimplemented names the problem with the description.
  static absl::StatusOr<std::shared_ptr<const ServedModel>> Create(ModelDescription description);

  // The description's `tokenizer` is empty, because tokenizer() holds the tables.
  const ModelDescription& description() const { return description_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const PromptEncoder& encoder() const { return encoder_; }

 private:
  ServedModel(ModelDescription description, std::unique_ptr<const Tokenizer> tokenizer);

  const ModelDescription description_;
  const std::unique_ptr<const Tokenizer> tokenizer_;
  const PromptEncoder encoder_;
};

}  // namespace baton
