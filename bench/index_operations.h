// Writes the operations of an index workload to a file, for other programs to replay. There is one
// JSON object per line:
//   {"kind": "match", "hashes": [[low, high], …]}
//   {"kind": "stored", "worker": 3, "parent": [low, high] or null, "hashes": […]}
//   {"kind": "removed", "worker": 3, "hashes": […]}
// `low` and `high` are the 64-bit halves of a 128-bit chained hash.
#pragma once

#include <fstream>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "bench/cache_trace.h"
#include "common/str_cat.h"

namespace baton {

inline void WriteHash(std::ostream& out, const Hash128& hash) {
  out << '[' << hash.low << ',' << hash.high << ']';
}

inline absl::Status WriteOperations(const IndexWorkload& workload, const std::string& path) {
  std::ofstream out(path);
  for (const IndexOperation& op : workload.operations) {
    const char* const kinds[] = {"match", "stored", "removed"};
    out << "{\"kind\":\"" << kinds[static_cast<int>(op.kind)] << '"';
    if (op.kind != IndexOperation::Kind::kMatch) out << ",\"worker\":" << op.worker;
    if (op.kind == IndexOperation::Kind::kStored) {
      out << ",\"parent\":";
      if (op.parent == IndexOperation::kNoParent) {
        out << "null";
      } else {
        WriteHash(out, workload.hashes[op.parent]);
      }
    }
    out << ",\"hashes\":[";
    const char* separator = "";
    for (const Hash128& hash : workload.HashesOf(op)) {
      out << separator;
      WriteHash(out, hash);
      separator = ",";
    }
    out << "]}\n";
  }
  out.close();
  if (!out) return absl::UnavailableError(StrCat("cannot write ", path));
  return absl::OkStatus();
}

}  // namespace baton
