// libgyre_ucx: all that calls UCX. Messages are UCP active messages, eager or by rendezvous as UCX finds best.
#include <ucp/api/ucp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gyre/version.h"
#include "transport/ucx/wire.h"

namespace gyre::ucx {

namespace {

constexpr unsigned kMessageId = 1;
constexpr std::chrono::seconds kLongestEnd{1};
constexpr int kMostSteps = 64;  // of progress in one call: the others should have their turn

absl::Status ToStatus(ucs_status_t status, const char* what) {
  if (status == UCS_OK) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, ": ", ucs_status_string(status)));
}

// Copied, or received by rendezvous.
class OwnContent final : public Content {
 public:
  explicit OwnContent(size_t size) : data_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}
  Bytes bytes() const override { return {data_.get(), size_}; }
  std::byte* data() { return data_.get(); }

 private:
  const std::unique_ptr<std::byte[]> data_;
  const size_t size_;
};

// Where UCX has put it.
class LentContent final : public Content {
 public:
  LentContent(ucp_worker_h worker, void* data, size_t size) : worker_(worker), data_(data), size_(size) {}
  ~LentContent() override { ucp_am_data_release(worker_, data_); }
  Bytes bytes() const override { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  const ucp_worker_h worker_;
  void* const data_;
  const size_t size_;
};

class UcxWire final : public Wire {
 public:
  explicit UcxWire(Events events) : events_(std::move(events)) {}
  ~UcxWire() override;
  absl::Status Open();

  const std::string& address() const override { return address_; }
  absl::Status Connect(int peer, std::string_view address) override;
  void Send(int peer, std::unique_ptr<Packet> packet) override;
  bool Progress() override;
  int descriptor() const override { return descriptor_; }
  bool Arm() override { return ucp_worker_arm(worker_) == UCS_OK; }

 private:
  struct Peer {
    UcxWire* wire;
    int rank;
    ucp_ep_h endpoint;
  };
  // A message that is sent, or one that comes by rendezvous: what UCX writes to or reads from until its request ends.
  struct Sending {
    UcxWire* wire;
    std::unique_ptr<Packet> packet;
  };
  struct Receiving {
    UcxWire* wire;
    Header header;
    void* descriptor;
    std::unique_ptr<OwnContent> content;
  };

  static ucs_status_t OnMessage(void* self, const void* header, size_t header_size, void* data, size_t size,
                                const ucp_am_recv_param_t* param);
  static void OnSent(void* request, ucs_status_t status, void* sending);
  static void OnReceived(void* request, ucs_status_t status, size_t size, void* receiving);
  static void OnFailure(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  absl::Status OpenWorker();
  void Fetch(std::unique_ptr<Receiving> receiving);
  void End(std::unique_ptr<Sending> sending);
  void End(std::unique_ptr<Receiving> receiving, ucs_status_t status);
  bool CloseEndpoints();

  const Events events_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::string address_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  std::vector<std::unique_ptr<Receiving>> announced_;  // by rendezvous; begun outside UCX's callbacks
  int64_t under_way_ = 0;                              // requests
  bool ending_ = false;
};

absl::Status UcxWire::Open() {
  ucp_config_t* config = nullptr;
  if (absl::Status status = ToStatus(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read"); !status.ok()) {
    return status;
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  const ucs_status_t made = ucp_init(&params, config, &context_);
  ucp_config_release(config);
  if (absl::Status status = ToStatus(made, "ucp_init"); !status.ok()) return status;
  return OpenWorker();
}

absl::Status UcxWire::OpenWorker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  if (absl::Status status = ToStatus(ucp_worker_create(context_, &params, &worker_), "ucp_worker_create");
      !status.ok()) {
    return status;
  }
  if (absl::Status status = ToStatus(ucp_worker_get_efd(worker_, &descriptor_), "ucp_worker_get_efd"); !status.ok()) {
    return status;
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kMessageId;
  handler.cb = OnMessage;
  handler.arg = this;
  if (absl::Status status =
          ToStatus(ucp_worker_set_am_recv_handler(worker_, &handler), "ucp_worker_set_am_recv_handler");
      !status.ok()) {
    return status;
  }
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  if (absl::Status status = ToStatus(ucp_worker_query(worker_, &attributes), "ucp_worker_query"); !status.ok()) {
    return status;
  }
  address_.assign(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_worker_release_address(worker_, attributes.address);
  if (attributes.max_am_header >= kHeaderBytes) return absl::OkStatus();
  return absl::UnavailableError("UCX's transports here take no headers of active messages that are long enough");
}

UcxWire::~UcxWire() {
  ending_ = true;
  announced_.clear();
  // What UCX may still read or write, and what is told of it, must stay.
  if (worker_ != nullptr && !CloseEndpoints()) return;
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

// Whether all that was under way has ended.
bool UcxWire::CloseEndpoints() {
  std::vector<void*> closing;
  for (const auto& [rank, peer] : peers_) {
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void* const request = ucp_ep_close_nbx(peer->endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) closing.push_back(request);
  }
  const auto deadline = std::chrono::steady_clock::now() + kLongestEnd;
  while (!closing.empty() || under_way_ > 0) {
    while (ucp_worker_progress(worker_) != 0) continue;
    std::erase_if(closing, [](void* request) {
      if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
      ucp_request_free(request);
      return true;
    });
    if (std::chrono::steady_clock::now() >= deadline) return closing.empty() && under_way_ == 0;
  }
  return true;
}

absl::Status UcxWire::Connect(int rank, std::string_view address) {
  auto peer = std::make_unique<Peer>(Peer{this, rank, nullptr});
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = OnFailure;
  params.err_handler.arg = peer.get();
  if (absl::Status status = ToStatus(ucp_ep_create(worker_, &params, &peer->endpoint), "ucp_ep_create"); !status.ok()) {
    return status;
  }
  peers_[rank] = std::move(peer);
  return absl::OkStatus();
}

void UcxWire::Send(int rank, std::unique_ptr<Packet> packet) {
  auto sending = std::make_unique<Sending>(Sending{this, std::move(packet)});
  const Packet& sent = *sending->packet;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = OnSent;
  param.user_data = sending.get();
  void* const request = ucp_am_send_nbx(peers_.at(rank)->endpoint, kMessageId, sent.header.data(), kHeaderBytes,
                                        sent.data.get(), sent.size, &param);
  if (UCS_PTR_IS_ERR(request)) events_.on_failure(rank, ucs_status_string(UCS_PTR_STATUS(request)));
  if (!UCS_PTR_IS_PTR(request)) return End(std::move(sending));
  ++under_way_;
  (void)sending.release();  // OnSent's
}

void UcxWire::OnSent(void* request, ucs_status_t, void* sending) {
  std::unique_ptr<Sending> ended(static_cast<Sending*>(sending));
  UcxWire& self = *ended->wire;
  --self.under_way_;
  self.End(std::move(ended));
  ucp_request_free(request);
}

void UcxWire::End(std::unique_ptr<Sending> sending) {
  if (!ending_) events_.on_sent(std::move(sending->packet));
}

ucs_status_t UcxWire::OnMessage(void* wire, const void* header, size_t header_size, void* data, size_t size,
                                const ucp_am_recv_param_t* param) {
  UcxWire& self = *static_cast<UcxWire*>(wire);
  Header copy;
  if (self.ending_ || header_size != copy.size()) return UCS_OK;
  std::memcpy(copy.data(), header, copy.size());
  if (!self.events_.accept(copy, size)) return UCS_OK;
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    self.announced_.push_back(
        std::make_unique<Receiving>(Receiving{&self, copy, data, std::make_unique<OwnContent>(size)}));
    return UCS_INPROGRESS;
  }
  // What has no bytes would be given back before this returns, which UCX does not allow.
  if (size > 0 && (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0) {
    self.events_.on_message(copy, std::make_unique<LentContent>(self.worker_, data, size));
    return UCS_INPROGRESS;
  }
  auto content = std::make_unique<OwnContent>(size);
  if (size > 0) std::memcpy(content->data(), data, size);
  self.events_.on_message(copy, std::move(content));
  return UCS_OK;
}

bool UcxWire::Progress() {
  int steps = 0;
  while (steps < kMostSteps && ucp_worker_progress(worker_) != 0) ++steps;
  for (auto& receiving : std::exchange(announced_, {})) Fetch(std::move(receiving));
  return steps > 0;
}

void UcxWire::Fetch(std::unique_ptr<Receiving> receiving) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = OnReceived;
  param.user_data = receiving.get();
  OwnContent& content = *receiving->content;
  void* const request =
      ucp_am_recv_data_nbx(worker_, receiving->descriptor, content.data(), content.bytes().size(), &param);
  if (!UCS_PTR_IS_PTR(request)) return End(std::move(receiving), UCS_PTR_RAW_STATUS(request));
  ++under_way_;
  (void)receiving.release();  // OnReceived's
}

void UcxWire::OnReceived(void* request, ucs_status_t status, size_t, void* receiving) {
  std::unique_ptr<Receiving> ended(static_cast<Receiving*>(receiving));
  UcxWire& self = *ended->wire;
  --self.under_way_;
  self.End(std::move(ended), status);
  ucp_request_free(request);
}

void UcxWire::End(std::unique_ptr<Receiving> receiving, ucs_status_t status) {
  if (status != UCS_OK) receiving->content.reset();
  if (!ending_) events_.on_message(receiving->header, std::move(receiving->content));
}

void UcxWire::OnFailure(void* peer, ucp_ep_h, ucs_status_t status) {
  const Peer& failed = *static_cast<Peer*>(peer);
  if (!failed.wire->ending_) failed.wire->events_.on_failure(failed.rank, ucs_status_string(status));
}

absl::StatusOr<std::unique_ptr<Wire>> Open(Events events) {
  auto wire = std::make_unique<UcxWire>(std::move(events));
  if (absl::Status status = wire->Open(); !status.ok()) return status;
  return wire;
}

}  // namespace

}  // namespace gyre::ucx

extern "C" __attribute__((visibility("default"))) const gyre::ucx::Module* gyre_ucx_module() {
  static constexpr gyre::ucx::Module kModule{GYRE_VERSION_STRING, gyre::ucx::Open};
  return &kModule;
}
