// Little-endian writing and bounds-checked reading of wire messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace gyre {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline Bytes AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline MutableBytes AsMutableBytes(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}
inline std::string_view AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Appends to a string it does not own.
class WireWriter {
 public:
  explicit WireWriter(std::string& out) : out_(out) {}

  void U8(uint8_t value) { Integer(value); }
  void U16(uint16_t value) { Integer(value); }
  void U32(uint32_t value) { Integer(value); }
  void U64(uint64_t value) { Integer(value); }
  void I32(int32_t value) { Integer(static_cast<uint32_t>(value)); }  // two's complement
  void Raw(std::string_view bytes) { out_.append(bytes); }
  void Text(std::string_view text) {  // u32 length, then the bytes
    U32(static_cast<uint32_t>(text.size()));
    Raw(text);
  }

 private:
  template <typename T>
  void Integer(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) out_.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }

  std::string& out_;
};

// All that `write(writer)` writes.
template <typename Write>
std::string Written(Write write) {
  std::string bytes;
  WireWriter writer(bytes);
  write(writer);
  return bytes;
}

// Reads from bytes it does not own. Past the end everything reads as zero or empty and ok() turns false for good, so
// that a message is read in one go and judged once. Never allocates.
class WireReader {
 public:
  explicit WireReader(Bytes bytes) : bytes_(bytes) {}
  explicit WireReader(std::string_view bytes) : bytes_(AsBytes(bytes)) {}

  uint8_t U8() { return Integer<uint8_t>(); }
  uint16_t U16() { return Integer<uint16_t>(); }
  uint32_t U32() { return Integer<uint32_t>(); }
  uint64_t U64() { return Integer<uint64_t>(); }
  int32_t I32() { return static_cast<int32_t>(U32()); }  // a u32 that is no int32_t reads as a negative number
  std::string_view Raw(size_t size) {
    if (size > bytes_.size()) ok_ = false;
    if (!ok_) return {};
    const Bytes front = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return AsText(front);
  }
  std::string_view Text() { return Raw(U32()); }

  bool ok() const { return ok_; }
  bool AtEnd() const { return ok_ && bytes_.empty(); }  // everything was there, and nothing more

 private:
  template <typename T>
  T Integer() {
    const std::string_view raw = Raw(sizeof(T));
    T value = 0;
    for (size_t i = 0; i < raw.size(); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(static_cast<uint8_t>(raw[i])) << (8 * i)));
    }
    return value;
  }

  Bytes bytes_;
  bool ok_ = true;
};

}  // namespace gyre
