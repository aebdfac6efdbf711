#include "cli/conversation.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/check.h"

namespace baton {
namespace {

struct CommandRow {
  ChatCommand command;
  const char* name;
  const char* argument;
  const char* help;
};

constexpr CommandRow kCommands[] = {
    {ChatCommand::kHelp, "/help", "", "show this list"},
    {ChatCommand::kReset, "/reset", "", "start a new conversation with the same system message"},
    {ChatCommand::kUndo, "/undo", "", "remove the last question and its answer"},
    {ChatCommand::kSave, "/save", " FILE", "write the conversation to a new file, as a job line"},
    {ChatCommand::kSystem, "/system", " [TEXT]", "show the system message, or replace it"},
    {ChatCommand::kSettings, "/settings", "", "show the sampling settings"},
    {ChatCommand::kQuit, "/quit", "", "end the conversation, as Ctrl-D"},
};

ChatMessage Message(const char* role, const std::string& content) {
  return {.role = role, .content = content, .name = std::nullopt};
}

}  // namespace

ChatLine ParseChatLine(std::string_view line) {
  if (!line.starts_with('/')) return {.command = ChatCommand::kMessage, .text = std::string(line)};
  if (line.starts_with("//")) {
    return {.command = ChatCommand::kMessage, .text = std::string(line.substr(1))};
  }
  const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string_view name = line.substr(0, end);
  for (const CommandRow& row : kCommands) {
    if (row.name != name) continue;
    const std::string rest(line.substr(end));
    return {.command = row.command, .text = std::string(absl::StripAsciiWhitespace(rest))};
  }
  return {.command = ChatCommand::kUnknown, .text = std::string(name)};
}

std::string ChatHelp() {
  std::string help;
  for (const CommandRow& row : kCommands) {
    absl::StrAppendFormat(&help, "%-16s %s\n", absl::StrCat(row.name, row.argument), row.help);
  }
  absl::StrAppendFormat(&help, "%-16s %s\n", "//TEXT", "a message that begins with /");
  absl::StrAppendFormat(&help, "%-16s %s\n", "Ctrl-C", "stop the answer, or discard the line");
  absl::StrAppendFormat(&help, "%-16s %s\n", "Ctrl-D", "end the conversation");
  return help;
}

std::vector<std::string> ChatCommandNames() {
  std::vector<std::string> names;
  for (const CommandRow& row : kCommands) names.emplace_back(row.name);
  return names;
}

Conversation::Conversation(const std::string& system, std::vector<PromptPart> chunks)
    : chunks_(std::move(chunks)) {
  SetSystem(system);
}

void Conversation::Ask(const std::string& text) {
  const bool first = messages_.size() == first_question();
  messages_.push_back(Message("user", text));
  if (first) messages_.back().chunks = chunks_;
}

void Conversation::Answer(const std::string& text) {
  CHECK(!messages_.empty() && messages_.back().role == "user") << "no question is open";
  messages_.push_back(Message("assistant", text));
}

void Conversation::TakeBack() {
  CHECK(!messages_.empty() && messages_.back().role == "user") << "no question is open";
  messages_.pop_back();
}

bool Conversation::Undo() {
  if (messages_.size() < first_question() + 2) return false;
  messages_.resize(messages_.size() - 2);
  return true;
}

void Conversation::Reset() {
  messages_.clear();
  if (!system_.empty()) messages_.push_back(Message("system", system_));
}

void Conversation::SetSystem(const std::string& text) {
  if (!system_.empty()) messages_.erase(messages_.begin());
  system_ = text;
  if (!system_.empty()) messages_.insert(messages_.begin(), Message("system", system_));
}

absl::Status Conversation::Save(const std::string& path) const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages_) {
    messages.push_back({{"role", message.role}, {"content", message.content}});
    for (const PromptPart& chunk : message.chunks) {
      std::visit([&](const auto& part) { messages.back()["chunks"].push_back(part); }, chunk);
    }
  }
  const nlohmann::ordered_json job = {{"messages", std::move(messages)}};
  const std::string line =
      job.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  std::FILE* const file = std::fopen(path.c_str(), "wxe");  // x: fails if the file exists
  if (file == nullptr) {
    const int why = errno;
    if (why == EEXIST) {
      return absl::AlreadyExistsError(absl::StrCat(path, " exists; name a new file"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("cannot create ", path, ": ", std::strerror(why)));
  }
  const bool written = std::fwrite(line.data(), 1, line.size(), file) == line.size();
  if (std::fclose(file) == 0 && written) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
}

}  // namespace baton
