#include "descriptor.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "gyre/status_macros.h"

namespace cudnn_cnn {

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) : type_(type) {
  cudnnBackendDescriptor_t made = nullptr;
  status_ =
      Check(cudnnBackendCreateDescriptor(type, &made), absl::StrCat("making descriptor ", static_cast<int>(type)));
  owned_.reset(made);
}

Descriptor& Descriptor::Set(cudnnBackendAttributeName_t name, const Descriptor& value) {
  cudnnBackendDescriptor_t const descriptor = value.get();
  return SetRaw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor);
}

Descriptor& Descriptor::SetRaw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t count,
                               const void* values) {
  if (!status_.ok()) return *this;
  status_ = Check(cudnnBackendSetAttribute(get(), name, type, static_cast<int64_t>(count), values),
                  Text("setting", static_cast<int>(name)));
  return *this;
}

absl::Status Descriptor::Finalize() {
  RETURN_IF_ERROR(status_);
  return Check(cudnnBackendFinalize(get()), absl::StrCat("finalising descriptor ", static_cast<int>(type_)));
}

absl::StatusOr<int64_t> Descriptor::GetInt64(cudnnBackendAttributeName_t name) const {
  int64_t value = 0, count = 0;
  RETURN_IF_ERROR(Check(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_INT64, 1, &count, &value),
                        Text("reading", static_cast<int>(name))));
  return value;
}

absl::StatusOr<std::vector<cudnnBackendNumericalNote_t>> Descriptor::GetNotes() const {
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  int64_t count = 0;
  RETURN_IF_ERROR(Check(cudnnBackendGetAttribute(get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                                 std::ssize(notes), &count, notes.data()),
                        Text("reading", CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)));
  notes.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, std::ssize(notes))));
  return notes;
}

absl::StatusOr<Descriptor> Descriptor::Get(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type) const {
  Descriptor found(type);
  RETURN_IF_ERROR(found.status_);
  cudnnBackendDescriptor_t raw = found.get();
  int64_t count = 0;
  RETURN_IF_ERROR(Check(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
                        Text("reading", static_cast<int>(name))));
  return found;
}

absl::StatusOr<std::vector<Descriptor>> Descriptor::GetAll(cudnnBackendAttributeName_t name,
                                                           cudnnBackendDescriptorType_t type) const {
  const std::string what = Text("reading", static_cast<int>(name));
  int64_t count = 0;
  RETURN_IF_ERROR(
      Check(cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr), what));
  // cuDNN fills descriptors that are there, and says how many it filled.
  std::vector<Descriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    found.emplace_back(type);
    RETURN_IF_ERROR(found.back().status_);
    raw.push_back(found.back().get());
  }
  RETURN_IF_ERROR(Check(
      cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(raw), &count, raw.data()), what));
  found.erase(found.begin() + std::min(count, std::ssize(found)), found.end());
  return found;
}

std::string Descriptor::Text(const char* doing, int attribute) const {
  return absl::StrCat(doing, " attribute ", attribute, " of descriptor ", static_cast<int>(type_));
}

}  // namespace cudnn_cnn
