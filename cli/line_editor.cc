#include "cli/line_editor.h"

#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/file_descriptor.h"

namespace baton {
namespace {

constexpr int kHistoryLines = 1000;
constexpr char kPasteOn[] = "\033[?2004h";
constexpr char kPasteOff[] = "\033[?2004l";
constexpr char kPasteBegin[] = "\033[200~";
constexpr wchar_t kPasteEnd[] = L"\033[201~";
constexpr wchar_t kReplacement = L'\uFFFD';

void Show(const char* text) {
  std::fputs(text, stdout);
  std::fflush(stdout);
}

}  // namespace

struct LineEditor::State {
  EditLine* editor = nullptr;
  History* history = nullptr;
  FileDescriptor interrupt{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  bool interrupted = false;
  size_t max_bytes = 0;
  bool too_long = false;
  std::string prompt;
  std::string history_file;

  static State& Of(EditLine* editor) {
    void* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return *static_cast<State*>(state);
  }

  // Reads the next byte of the terminal. Returns 0 at its end, and a negative value after an
  // interrupt or an error.
  int ReadByte(unsigned char& byte) {
    std::array<pollfd, 2> sources = {{{.fd = interrupt.get(), .events = POLLIN, .revents = 0},
                                      {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0}}};
    while (true) {
      if (poll(sources.data(), sources.size(), -1) < 0) {
        if (errno == EINTR) continue;
        return -1;
      }
      if (sources[0].revents != 0) {
        uint64_t times = 0;
        (void)!read(interrupt.get(), &times, sizeof(times));
        interrupted = true;
        errno = ECANCELED;
        return -1;
      }
      const ssize_t count = read(STDIN_FILENO, &byte, 1);
      if (count >= 0 || errno != EINTR) return static_cast<int>(count);
    }
  }

  // Reads the next character. U+FFFD replaces invalid UTF-8. Returns the same as ReadByte.
  static int ReadCharacter(EditLine* editor, wchar_t* character) {
    State& state = Of(editor);
    std::mbstate_t decoding = {};
    while (true) {
      unsigned char byte = 0;
      const int count = state.ReadByte(byte);
      if (count != 1) return count;
      const char text = static_cast<char>(byte);
      const size_t used = std::mbrtowc(character, &text, 1, &decoding);
      if (used == static_cast<size_t>(-2)) continue;  // continues in the next byte
      if (used == static_cast<size_t>(-1)) *character = kReplacement;
      return 1;
    }
  }

  // Runs at the mark that begins a paste. All text up to the end mark belongs to the paste. If the
  // paste is too long, keeps only the bytes that are needed to find the end mark.
  static unsigned char TakePaste(EditLine* editor, int) {
    State& state = Of(editor);
    constexpr size_t kMarkLength = std::size(kPasteEnd) - 1;
    std::wstring pasted;
    for (wchar_t character; ReadCharacter(editor, &character) == 1;) {
      if (pasted.size() >= state.max_bytes + kMarkLength) {
        state.too_long = true;
        pasted.erase(0, pasted.size() - kMarkLength);
      }
      pasted += character == L'\r' ? L'\n' : character;
      if (!pasted.ends_with(kPasteEnd)) continue;
      if (state.too_long) return CC_NEWLINE;
      pasted.resize(pasted.size() - kMarkLength);
      while (pasted.ends_with(L'\n')) pasted.pop_back();  // Enter sends it
      return el_winsertstr(editor, pasted.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
    }
    return CC_EOF;
  }

  static char* Prompt(EditLine* editor) { return Of(editor).prompt.data(); }
};

LineEditor::LineEditor(bool colours, size_t max_bytes, const std::string& history_file)
    : state_(std::make_unique<State>()) {
  state_->max_bytes = max_bytes;
  state_->history_file = history_file;
  // libedit counts columns by the locale. Text here is always UTF-8.
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) std::setlocale(LC_CTYPE, "");
  constexpr char kInvisible = '\1';  // encloses text that takes no column
  state_->prompt = colours ? "\1\033[1m\1>\1\033[0m\1 " : "> ";
  state_->editor = el_init("baton", stdin, stdout, stderr);
  state_->history = history_init();
  EditLine* const editor = state_->editor;
  HistEvent event;
  history(state_->history, &event, H_SETSIZE, kHistoryLines);
  history(state_->history, &event, H_SETUNIQUE, 1);
  if (!history_file.empty()) history(state_->history, &event, H_LOAD, history_file.c_str());
  el_set(editor, EL_CLIENTDATA, state_.get());
  el_set(editor, EL_PROMPT_ESC, &State::Prompt, kInvisible);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, history, state_->history);
  el_set(editor, EL_GETCFN, &State::ReadCharacter);
  el_set(editor, EL_ADDFN, "take-paste", "Insert what is pasted", &State::TakePaste);
  el_source(editor, nullptr);  // ~/.editrc; read first, so the bindings below override it
  el_set(editor, EL_BIND, kPasteBegin, "take-paste", nullptr);
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
}

LineEditor::~LineEditor() {
  history_end(state_->history);
  el_end(state_->editor);
}

LineEdit LineEditor::Read(std::string& line) {
  Show(kPasteOn);
  state_->interrupted = false;
  state_->too_long = false;
  int length = 0;
  const char* const typed = el_gets(state_->editor, &length);
  Show(kPasteOff);
  if (state_->interrupted) return LineEdit::kInterrupted;
  if (state_->too_long) return LineEdit::kTooLong;
  if (typed == nullptr || length <= 0) return LineEdit::kEnd;
  if (static_cast<size_t>(length) > state_->max_bytes + 1) return LineEdit::kTooLong;
  line.assign(typed, static_cast<size_t>(length));
  if (line.ends_with('\n')) line.pop_back();
  return LineEdit::kLine;
}

void LineEditor::Remember(const std::string& line) {
  HistEvent event;
  history(state_->history, &event, H_ENTER, line.c_str());
  if (state_->history_file.empty()) return;
  // A history that cannot be written is lost. That is no reason to fail.
  const std::filesystem::path file = state_->history_file;
  std::error_code failed;
  if (std::filesystem::create_directories(file.parent_path(), failed)) {
    std::filesystem::permissions(file.parent_path(), std::filesystem::perms::owner_all, failed);
  }
  // A new file replaces the old one, so that a killed process loses nothing.
  const std::string fresh = absl::StrCat(file.string(), ".", getpid());
  if (history(state_->history, &event, H_SAVE, fresh.c_str()) < 0) return;  // for the owner only
  std::filesystem::rename(fresh, file, failed);
  if (failed) std::filesystem::remove(fresh, failed);
}

void LineEditor::Interrupt() {
  const uint64_t once = 1;
  (void)!write(state_->interrupt.get(), &once, sizeof(once));
}

}  // namespace baton
