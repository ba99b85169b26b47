#include "gloo_context.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "base/fd.h"
#include "gloo/rendezvous/context.h"
#include "gloo/rendezvous/store.h"
#include "gloo/transport/tcp/device.h"
#include "gyre/status_macros.h"

namespace gyre::bench {

namespace {

// Every rank of a context sets its keys in the same order as the others, and reads none before it has set its own: so
// each Set can be a collective operation that gives all ranks everybody's.
class CollectiveStore final : public gloo::rendezvous::Store {
 public:
  explicit CollectiveStore(Communicator& world) : world_(world) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    for (const std::vector<char>& pair : Exchange(key, data)) {
      const auto middle = std::find(pair.begin(), pair.end(), '\0');
      values_[std::string(pair.begin(), middle)] = std::vector<char>(middle + 1, pair.end());
    }
  }

  std::vector<char> get(const std::string& key) override { return values_.at(key); }

  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) values_.at(key);
  }

 private:
  // By rank: its key, a zero, its data.
  std::vector<std::vector<char>> Exchange(const std::string& key, const std::vector<char>& data) {
    std::vector<uint8_t> own(key.begin(), key.end());
    own.push_back(0);
    own.insert(own.end(), data.begin(), data.end());
    const auto size = static_cast<int64_t>(own.size());
    std::vector<int64_t> sizes(static_cast<size_t>(world_.size()));
    Expect(world_.AllGather(std::span(&size, 1), sizes));
    int64_t total = 0;
    for (const int64_t each : sizes) total += each;
    std::vector<uint8_t> all(static_cast<size_t>(total));
    Expect(world_.AllGatherV(own, sizes, all));
    std::vector<std::vector<char>> pairs;
    auto at = all.begin();
    for (const int64_t each : sizes) {
      pairs.emplace_back(at, at + each);
      at += each;
    }
    return pairs;
  }

  // Gloo's interface knows exceptions only; MakeGlooContext catches them.
  static void Expect(const absl::Status& status) {
    if (!status.ok()) throw std::runtime_error(std::string(status.message()));
  }

  Communicator& world_;
  std::map<std::string, std::vector<char>> values_;
};

// This machine's address on the way to `endpoint`, "host:port".
absl::StatusOr<std::string> AddressTowards(const std::string& endpoint) {
  const size_t colon = endpoint.rfind(':');
  std::string host = endpoint.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;  // connecting sends nothing
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), endpoint.substr(colon + 1).c_str(), &hints, &found) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot resolve the store's host ", host));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const UniqueFd socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own = {};
  socklen_t length = sizeof(own);
  char text[NI_MAXHOST] = {};
  if (connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
    return absl::UnavailableError(absl::StrCat("no way to the store at ", endpoint));
  }
  return text;
}

absl::StatusOr<gloo::transport::tcp::attr> Place(const Communicator& world) {
  gloo::transport::tcp::attr place;
  if (world.node_count() == 1) {
    place.iface = "lo";
    return place;
  }
  ASSIGN_OR_RETURN(const Config config, LoadConfig({}, ProcessEnvironment()));
  if (!config.interface && !config.store) {
    return absl::FailedPreconditionError("set GYRE_INTERFACE to say where Gloo's traffic goes");
  }
  if (!config.interface) {
    ASSIGN_OR_RETURN(place.hostname, AddressTowards(*config.store));
  } else if (if_nametoindex(config.interface->c_str()) != 0) {
    place.iface = *config.interface;
  } else if (config.interface->find('/') == std::string::npos) {
    place.hostname = *config.interface;
  } else {
    return absl::UnimplementedError("Gloo takes an interface or an address in GYRE_INTERFACE, but no subnet");
  }
  return place;
}

}  // namespace

absl::StatusOr<std::shared_ptr<gloo::Context>> MakeGlooContext(Communicator& world) {
  ASSIGN_OR_RETURN(const gloo::transport::tcp::attr place, Place(world));
  try {
    auto device = gloo::transport::tcp::CreateDevice(place);
    auto context = std::make_shared<gloo::rendezvous::Context>(world.rank(), world.size());
    CollectiveStore store(world);
    context->connectFullMesh(store, device);
    return context;
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("Gloo's ranks could not meet: ", error.what()));
  }
}

}  // namespace gyre::bench
