#include "kvtransfer/protocol/hello_fields.h"

#include <string>
#include <utility>

#include "absl/strings/str_format.h"

namespace baton {
namespace {

void ReadHelloFields(FieldReader& r, HelloFrame& f) {
  KvFingerprint& p = f.fingerprint;
  r.Text("model", kMaxFingerprintText, p.model);
  r.Text("backend", kMaxFingerprintText, p.backend);
  r.Text("kv_type", kMaxFingerprintText, p.kv_type);
  r.Text("layout", kMaxFingerprintText, p.layout);
  r.Text("rope", kMaxFingerprintText, p.rope);
  r.Text("node", kMaxFingerprintText, f.node);
  uint32_t numerics_revision;
  r.Number("numerics_revision", numerics_revision);
  p.numerics = NumericsOfRevision(numerics_revision);
  r.Number("block_size", p.block_size);
  r.Number("layers", p.layers);
  r.Number("kv_heads", p.kv_heads);
  r.Number("head_dim", p.head_dim);
  uint64_t epoch;
  r.Number("epoch", epoch);
  f.epoch = Epoch(epoch);
  if (!r.ok() || r.at_end()) return;
  r.Number("oldest protocol_version", p.protocol.oldest);
  r.Text("numerics", kMaxFingerprintText, p.numerics);
  if (!r.ok() || r.at_end() || p.protocol.newest < kGroupsProtocolVersion) return;
  r.Text("groups", kMaxFingerprintText, p.groups);
}

}  // namespace

void WriteHello(FieldWriter& w, const HelloFrame& f) {
  const KvFingerprint& p = f.fingerprint;
  w.Number(p.protocol.newest);
  for (const std::string* text : {&p.model, &p.backend, &p.kv_type, &p.layout, &p.rope, &f.node}) {
    w.Text(*text);
  }
  w.Number(NumericsRevision(p.numerics));
  for (const int32_t value : {p.block_size, p.layers, p.kv_heads, p.head_dim}) w.Number(value);
  w.Number(f.epoch.value());
  const bool implied =
      p.protocol == ImpliedRange(p.protocol.newest) && NumericsRevision(p.numerics) != 0;
  const bool followed =
      p.protocol.newest > kGroupsProtocolVersion;  // fields of a later version follow
  const bool groups = followed || !p.groups.empty();
  if (implied && !groups) return;
  w.Number(p.protocol.oldest);
  w.Text(p.numerics);
  if (groups) w.Text(p.groups);
}

void ReadHello(FieldReader& r, HelloFrame& f) {
  uint32_t newest;
  r.Number("protocol_version", newest);
  f.fingerprint.protocol = ImpliedRange(newest);
  const bool later = newest > kNewestTransferProtocol;
  if (newest < kTransferProtocol.oldest) {  // its fields may have another layout
    r.SkipRest();
    return;
  }
  FieldReader fields = r;
  ReadHelloFields(fields, f);
  if (!later) {
    r = fields;
    return;
  }
  r.SkipRest();
  if (!fields.ok()) {  // only its version is known; that is enough to refuse it with a clear reason
    f = {};
    f.fingerprint.protocol = {.oldest = newest, .newest = newest};
  }
}

absl::Status CheckFingerprintFits(const KvFingerprint& p) {
  for (const auto& [name, text] : {std::pair<const char*, const std::string&>{"model", p.model},
                                   {"numerics", p.numerics},
                                   {"backend", p.backend},
                                   {"kv_type", p.kv_type},
                                   {"layout", p.layout},
                                   {"rope", p.rope},
                                   {"groups", p.groups}}) {
    if (text.size() > kMaxFingerprintText) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "fingerprint %s has %d bytes, the limit is %d", name, text.size(), kMaxFingerprintText));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton
