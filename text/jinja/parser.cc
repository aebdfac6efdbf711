#include "text/jinja/parser.h"

#include <initializer_list>
#include <string>
#include <utility>

#include "common/status_macros.h"
#include "text/jinja/error.h"
#include "text/jinja/expression_parser.h"
#include "text/jinja/lexer.h"
#include "text/utf8.h"

namespace baton {
namespace {

using TokenKind = JinjaToken::Kind;
using Kind = JinjaStatement::Kind;

class StatementParser {
 public:
  explicit StatementParser(JinjaTokenCursor& cursor) : cursor_(cursor), expressions_(cursor) {}

  absl::StatusOr<JinjaBlock> ParseTemplate() {
    ASSIGN_OR_RETURN(JinjaBlock block, ParseBlock({}, "", 0));
    return block;
  }

 private:
  using Statement = absl::StatusOr<JinjaStatement>;

  static JinjaStatement New(Kind kind, int line) {
    JinjaStatement statement;
    statement.kind = kind;
    statement.line = line;
    return statement;
  }

  // Parses statements up to a tag named in `ends`; without `ends`, up to the end of the template.
  // Consumes the end tag's "{%" but not its name. Error messages show `opener` and `line`.
  absl::StatusOr<JinjaBlock> ParseBlock(std::initializer_list<std::string_view> ends,
                                        std::string_view opener, int line) {
    const JinjaTokenCursor::Nesting nesting(cursor_);
    RETURN_IF_ERROR(nesting.status());
    JinjaBlock block;
    for (;;) {
      const TokenKind kind = cursor_.Peek().kind;
      if (kind == TokenKind::kEnd) {
        if (ends.size() == 0) return block;
        return JinjaError("line ", line, ": '", opener, "' has no ", *(ends.end() - 1));
      }
      const int statement_line = cursor_.Peek().line;
      if (kind == TokenKind::kText) {
        block.push_back(New(Kind::kText, statement_line));
        block.back().text = cursor_.Next().text;
      } else if (kind == TokenKind::kPrintBegin) {
        cursor_.Next();
        block.push_back(New(Kind::kPrint, statement_line));
        ASSIGN_OR_RETURN(block.back().expression, expressions_.ParseTuple(true));
        RETURN_IF_ERROR(cursor_.Expect(TokenKind::kPrintEnd));
      } else {
        RETURN_IF_ERROR(cursor_.Expect(TokenKind::kBlockBegin));
        for (const std::string_view end : ends) {
          if (cursor_.Peek().IsName(end)) return block;
        }
        ASSIGN_OR_RETURN(JinjaStatement statement, ParseTag());
        block.push_back(std::move(statement));
      }
    }
  }

  absl::Status EndTag() { return cursor_.Expect(TokenKind::kBlockEnd); }

  Statement ParseTag() {
    const JinjaToken token = cursor_.Peek();
    ASSIGN_OR_RETURN(const std::string tag, cursor_.ExpectName());
    if (tag == "if") return ParseIf(token.line);
    if (tag == "for") return ParseFor(token.line);
    if (tag == "set") return ParseSet(token.line);
    if (tag == "macro") return ParseMacro(token.line);
    if (tag == "generation") return ParseGeneration(token.line);
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) return JinjaError("line ", token.line, ": '", tag, "' outside a loop");
      RETURN_IF_ERROR(EndTag());
      return New(tag == "break" ? Kind::kBreak : Kind::kContinue, token.line);
    }
    for (const std::string_view end :
         {"elif", "else", "endif", "endfor", "endset", "endmacro", "endgeneration", "endraw"}) {
      if (tag == end) return JinjaError("line ", token.line, ": '", tag, "' has no opening tag");
    }
    return JinjaUnsupported("line ", token.line, ": tag '", tag, "' is not supported");
  }

  Statement ParseIf(int line) {
    JinjaStatement statement = New(Kind::kIf, line);
    bool more = true;
    while (more) {
      JinjaStatement::Branch branch;
      ASSIGN_OR_RETURN(branch.condition, expressions_.ParseTuple(false));
      RETURN_IF_ERROR(EndTag());
      ASSIGN_OR_RETURN(branch.body, ParseBlock({"elif", "else", "endif"}, "if", line));
      statement.branches.push_back(std::move(branch));
      more = cursor_.TryName("elif");
    }
    if (cursor_.TryName("else")) {
      RETURN_IF_ERROR(EndTag());
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock({"endif"}, "if", line));
    }
    cursor_.Next();
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  Statement ParseFor(int line) {
    JinjaStatement statement = New(Kind::kFor, line);
    ASSIGN_OR_RETURN(statement.target, expressions_.ParseTarget(false));
    if (!cursor_.TryName("in")) return cursor_.Unexpected();
    ASSIGN_OR_RETURN(statement.expression, expressions_.ParseTuple(false));
    if (cursor_.TryName("if")) {
      ASSIGN_OR_RETURN(statement.condition, expressions_.ParseExpression());
    }
    if (cursor_.Peek().IsName("recursive")) {
      return JinjaUnsupported("line ", line, ": 'recursive' of a for loop is not supported");
    }
    RETURN_IF_ERROR(EndTag());
    ++loops_;
    ++scopes_;
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"else", "endfor"}, "for", line));
    --loops_;
    if (cursor_.TryName("else")) {
      RETURN_IF_ERROR(EndTag());
      ASSIGN_OR_RETURN(statement.otherwise, ParseBlock({"endfor"}, "for", line));
    }
    --scopes_;
    cursor_.Next();
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  Statement ParseSet(int line) {
    JinjaStatement statement = New(Kind::kSet, line);
    ASSIGN_OR_RETURN(statement.target, expressions_.ParseTarget(true));
    if (cursor_.TryOperator("=")) {
      ASSIGN_OR_RETURN(statement.expression, expressions_.ParseTuple(true));
      RETURN_IF_ERROR(EndTag());
      return statement;
    }
    statement.kind = Kind::kSetBlock;
    if (cursor_.Peek().IsOperator("|")) {
      return JinjaUnsupported("line ", line, ": a filter on a set block is not supported");
    }
    RETURN_IF_ERROR(EndTag());
    ++scopes_;
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endset"}, "set", line));
    --scopes_;
    cursor_.Next();
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  Statement ParseMacro(int line) {
    if (scopes_ > 0) {
      return JinjaUnsupported("line ", line, ": a macro inside another block is not supported");
    }
    JinjaStatement statement = New(Kind::kMacro, line);
    ASSIGN_OR_RETURN(statement.text, cursor_.ExpectName());
    RETURN_IF_ERROR(cursor_.ExpectOperator("("));
    while (!cursor_.TryOperator(")")) {
      if (!statement.parameters.empty()) RETURN_IF_ERROR(cursor_.ExpectOperator(","));
      ASSIGN_OR_RETURN(std::string parameter, cursor_.ExpectName());
      JinjaExpressionPtr otherwise;
      if (cursor_.TryOperator("=")) {
        ASSIGN_OR_RETURN(otherwise, expressions_.ParseExpression());
      } else if (!statement.parameters.empty() && statement.parameters.back().second != nullptr) {
        return JinjaError("line ", line, ": parameter '", parameter,
                          "' without a default follows one with a default");
      }
      statement.parameters.emplace_back(std::move(parameter), std::move(otherwise));
    }
    RETURN_IF_ERROR(EndTag());
    cursor_.in_macro = true;
    ++scopes_;
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endmacro"}, "macro", line));
    --scopes_;
    cursor_.in_macro = false;
    cursor_.Next();
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  // {% generation %} marks the assistant's text for training. It does not change the output.
  Statement ParseGeneration(int line) {
    JinjaStatement statement = New(Kind::kScope, line);
    RETURN_IF_ERROR(EndTag());
    const int loops = std::exchange(loops_, 0);
    ++scopes_;
    ASSIGN_OR_RETURN(statement.body, ParseBlock({"endgeneration"}, "generation", line));
    --scopes_;
    loops_ = loops;
    cursor_.Next();
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  JinjaTokenCursor& cursor_;
  JinjaExpressionParser expressions_;
  int loops_ = 0;   // loop bodies around the cursor that `break` can leave
  int scopes_ = 0;  // blocks around the cursor that have their own variables
};

}  // namespace

absl::StatusOr<JinjaBlock> ParseJinja(std::string_view source, const JinjaLimits& limits) {
  if (source.size() > limits.max_template_bytes) {
    return JinjaLimitReached("the template has ", source.size(), " bytes; the limit is ",
                             limits.max_template_bytes);
  }
  if (const size_t valid = ValidUtf8Prefix(source); valid != source.size()) {
    return JinjaError("the template is not valid UTF-8 at byte ", valid);
  }
  ASSIGN_OR_RETURN(std::vector<JinjaToken> tokens, LexJinja(source));
  JinjaTokenCursor cursor(std::move(tokens), limits);
  return StatementParser(cursor).ParseTemplate();
}

}  // namespace baton
