#include "engine/peer_transport.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/entropy.h"
#include "common/thread_slice.h"
#include "engine/kv_pool.h"
#include "kernels/numerics.h"
#include "kvtransfer/loopback/loopback_transport.h"
#include "kvtransfer/sockets/create_socket_transport.h"

namespace baton {
namespace {

constexpr char kBackend[] = "cpu";  // the same for all CPU devices

}  // namespace

KvFingerprint FingerprintOf(const ModelInfo& model, const EngineOptions& options) {
  KvFingerprint fingerprint;
  fingerprint.model = model.fingerprint;
  fingerprint.numerics = NumericsOfRevision(kNumericsRevision);
  fingerprint.backend = kBackend;
  fingerprint.kv_type = std::string(KvTypeName(options.kv_type));
  fingerprint.layout = std::string(KvLayoutKindName(options.layout));
  fingerprint.block_size = options.block_size;
  fingerprint.layers = model.spec.layers;
  const KvCacheSpec spec = model.spec.KvOfType(options.kv_type);
  fingerprint.kv_heads = spec.groups.front().kv_heads;
  fingerprint.head_dim = spec.groups.front().head_dim;
  DescribeGroups(spec, fingerprint);
  fingerprint.rope = model.spec.rope;
  return fingerprint;
}

std::vector<std::pair<std::string, TransferMedium>> TransferMediumNames() {
  return {{"auto", TransferMedium::kAuto},
          {"tcp", TransferMedium::kTcp},
          {"shm", TransferMedium::kShm},
          {"nccl", TransferMedium::kNccl}};
}

void UseMedium(TransferMedium medium, const std::string& listen, EngineOptions& options) {
  options.transfer_listen = medium == TransferMedium::kShm ? "" : listen;
  options.transfer_shm = medium == TransferMedium::kAuto || medium == TransferMedium::kShm;
  options.transfer_nccl = medium == TransferMedium::kNccl;
}

absl::StatusOr<std::unique_ptr<KvTransport>> CreatePeerTransport(TransportOptions transport,
                                                                 EngineOptions& options) {
  if (options.loopback != nullptr) {
    return CreateLoopbackTransport(options.loopback, options.loopback_name, std::move(transport));
  }
  if (options.transfer_listen.empty() && !options.transfer_shm) return nullptr;
  SocketEndpoints endpoints{.tcp_listen = options.transfer_listen,
                            .tcp_advertise_host = options.transfer_advertise,
                            .shm_name = ""};
  if (options.transfer_shm) {
    endpoints.shm_name = absl::StrFormat("%d-%016x", getpid(), EntropyBits());
  }
  if (options.transfer_nccl) endpoints.nccl.emplace();
  const ShortSliceForNewThreads beside_threads_that_compute;
  absl::StatusOr<std::unique_ptr<KvTransport>> created =
      CreateSocketTransport(endpoints, transport);
  if (created.ok() || !options.transfer_shm) return created;
  endpoints.shm_name.clear();
  absl::StatusOr<std::unique_ptr<KvTransport>> without_shm =
      CreateSocketTransport(endpoints, std::move(transport));
  // If TCP alone fails too, shared memory was not the cause.
  if (!without_shm.ok() || !FallBackToTcp(created.status(), options)) return created;
  return without_shm;
}

}  // namespace baton
