#include "engine/peer_transport.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "common/entropy.h"
#include "common/status_macros.h"
#include "common/thread_slice.h"
#include "engine/kv_pool.h"
#include "kernels/create_device.h"
#include "kvtransfer/sockets/create_socket_transport.h"

namespace baton {
namespace {

// Values of --transport, the default first, and how each one sets the options. A medium that does
// not use sockets sets EngineOptions::open_transport.
struct Medium {
  const char* name;
  void (*use)(const std::string& listen, EngineOptions& options);
};
constexpr Medium kMedia[] = {
    {"auto",
     [](const std::string& listen, EngineOptions& options) {
       options.transfer_listen = listen;
       options.transfer_shm = true;
       options.transfer_auto = true;
     }},
    {"tcp",
     [](const std::string& listen, EngineOptions& options) { options.transfer_listen = listen; }},
    {"shm", [](const std::string&, EngineOptions& options) { options.transfer_shm = true; }},
    {"nccl",
     [](const std::string& listen, EngineOptions& options) {
       options.transfer_listen = listen;
       options.transfer_nccl = true;
     }},
};

// NCCL does not encrypt.
bool MayUseNccl(const EngineOptions& options) {
  return !options.transfer_tls.any() || options.nccl_plaintext;
}

absl::Status CheckNcclPlaintext(const EngineOptions& options) {
  if (!options.transfer_nccl || MayUseNccl(options)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the transport is \"nccl\", which does not encrypt, but --tls-cert is set: give "
      "--nccl-plaintext if the network between the GPUs is trusted, or use the transport tcp");
}

}  // namespace

absl::Status SettleTransfer(const Device& device, EngineOptions& options) {
  RETURN_IF_ERROR(CheckNcclPlaintext(options));
  if (device.host_accessible() || options.open_transport || options.lend_pool) {
    return absl::OkStatus();
  }
  if (options.transfer_auto) {
    options.transfer_shm = false;
    options.transfer_nccl = !options.transfer_listen.empty() && MayUseNccl(options);
  }
  return absl::OkStatus();
}

KvFingerprint FingerprintOf(const ModelInfo& model, const Device& device,
                            const EngineOptions& options) {
  KvFingerprint fingerprint;
  fingerprint.model = model.fingerprint;
  fingerprint.numerics = options.numerics;
  fingerprint.backend = std::string(device.backend());
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
  std::vector<std::pair<std::string, TransferMedium>> names;
  for (const Medium& medium : kMedia) {
    names.emplace_back(medium.name, TransferMedium(names.size()));
  }
  return names;
}

void UseMedium(TransferMedium medium, const std::string& listen, EngineOptions& options) {
  options.transfer_listen.clear();
  options.transfer_shm = false;
  options.transfer_nccl = false;
  options.transfer_auto = false;
  options.open_transport = nullptr;
  kMedia[static_cast<size_t>(medium)].use(listen, options);
}

absl::StatusOr<std::unique_ptr<KvTransport>> CreatePeerTransport(TransportOptions transport,
                                                                 EngineOptions& options) {
  if (options.open_transport) return options.open_transport(std::move(transport));
  if (options.transfer_listen.empty() && !options.transfer_shm) return nullptr;
  SocketEndpoints endpoints{.tcp_listen = options.transfer_listen,
                            .tcp_advertise_host = options.transfer_advertise,
                            .shm_name = "",
                            .tls = options.transfer_tls};
  if (options.transfer_shm) {
    endpoints.shm_name = absl::StrFormat("%d-%016x", getpid(), EntropyBits());
  }
  if (options.transfer_nccl) {
    const DeviceLibraries libraries = DeviceLibrariesOf(options.device);
    endpoints.nccl.emplace();
    endpoints.nccl->cuda_libraries = libraries.driver;
    endpoints.nccl->nccl_libraries = libraries.nccl;
    endpoints.nccl->device = CudaIndexOf(options.device).value_or(0);
  }
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
