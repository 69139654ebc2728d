// How this code describes a header: a plain struct of values whose `kFields` binds each member to
// one Field{byte, bit, width}, written in the notation of the InfiniBand Architecture's header
// figures (bit 0 is the most significant bit of the byte, fields are big-endian). parse_header,
// emit_header and HeaderView are derived from that one declaration. Reserved fields are declared
// too, so that parse and emit are inverses for every string of bytes; FV_CHECK_LAYOUT proves at
// compile time that the fields cover the header exactly once and that they round trip.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "farverbs/base/byte_order.h"
#include "farverbs/base/ids.h"

namespace farverbs::wire {

struct Field {
  uint16_t byte = 0;   // byte that holds the field's most significant bit
  uint8_t bit = 0;     // that bit's number in the byte; 0 is the most significant
  uint16_t width = 0;  // bits; at most 64 for numbers, a multiple of 8 for byte arrays

  constexpr size_t first_bit() const { return size_t{byte} * 8 + bit; }
  constexpr size_t end_bit() const { return first_bit() + width; }
};

template <class H, class T>
struct BoundField {
  T H::*member;
  Field field;
};

template <class H, class T>
constexpr BoundField<H, T> bind_field(T H::*member, Field field) {
  return {member, field};
}

template <class T>
inline constexpr bool is_byte_array = false;
template <size_t N>
inline constexpr bool is_byte_array<std::array<std::byte, N>> = true;

// The number a member stands for on the wire, and back.
template <class T>
constexpr uint64_t to_wire(const T& v) {
  if constexpr (requires { v.value(); }) {
    return v.value();
  } else {
    return static_cast<uint64_t>(v);
  }
}
template <class T>
constexpr T from_wire(uint64_t v) {
  if constexpr (std::same_as<T, MemoryKey> || std::same_as<T, Qpn>) {
    return T(static_cast<uint32_t>(v));
  } else if constexpr (std::same_as<T, bool>) {
    return v != 0;
  } else {
    return static_cast<T>(v);
  }
}

constexpr uint64_t low_bits(size_t width) {
  return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
}

template <std::unsigned_integral T>
constexpr T load_wire(const std::byte* p) {
  if (std::is_constant_evaluated()) {
    T v = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      v = static_cast<T>((uint64_t{v} << 8) | std::to_integer<uint64_t>(p[i]));
    }
    return v;
  }
  return load_be<T>(p);
}

template <std::unsigned_integral T>
constexpr void store_wire(std::byte* p, T v) {
  if (std::is_constant_evaluated()) {
    for (size_t i = sizeof(T); i-- > 0; v = static_cast<T>(uint64_t{v} >> 8)) {
      p[i] = static_cast<std::byte>(v & 0xff);
    }
    return;
  }
  store_be<T>(p, v);
}

namespace detail {

// The word of at least `Bits` bits inside a header of `Size` bytes that holds `F`.
template <Field F, size_t Size>
constexpr size_t window_bytes() {
  for (size_t bytes : {size_t{1}, size_t{2}, size_t{4}, size_t{8}}) {
    const size_t end = (F.end_bit() + 7) / 8;
    if (bytes > Size) break;
    const size_t start = end > bytes ? end - bytes : 0;
    if (start * 8 <= F.first_bit()) return bytes;
  }
  return 0;
}

template <size_t Bytes>
using Word = std::conditional_t<
    Bytes == 1, uint8_t,
    std::conditional_t<Bytes == 2, uint16_t, std::conditional_t<Bytes == 4, uint32_t, uint64_t>>>;

template <Field F, size_t Size>
constexpr uint64_t load_field(const std::byte* header) {
  constexpr size_t kBytes = window_bytes<F, Size>();
  static_assert(kBytes != 0, "a field must fit a 64-bit window inside its header");
  constexpr size_t kEnd = (F.end_bit() + 7) / 8;
  constexpr size_t kStart = kEnd > kBytes ? kEnd - kBytes : 0;
  constexpr size_t kShift = (kStart + kBytes) * 8 - F.end_bit();
  return (uint64_t{load_wire<Word<kBytes>>(header + kStart)} >> kShift) & low_bits(F.width);
}

// What a field of value `v` contributes to the big-endian word at [start, start + bytes).
constexpr uint64_t contribution(Field f, uint64_t v, size_t start, size_t bytes) {
  const size_t word_begin = start * 8;
  const size_t word_end = word_begin + bytes * 8;
  if (f.end_bit() <= word_begin || f.first_bit() >= word_end) return 0;
  v &= low_bits(f.width);
  const uint64_t moved =
      f.end_bit() > word_end ? v >> (f.end_bit() - word_end) : v << (word_end - f.end_bit());
  return moved & low_bits(bytes * 8);
}

}  // namespace detail

template <class H>
inline constexpr size_t kFieldCount = std::tuple_size_v<std::remove_cvref_t<decltype(H::kFields)>>;

// Reads H from its H::kSize bytes; the caller has checked that they are there. In place, because a
// struct that is written field by field and copied at once afterwards stalls the processor.
template <class H>
constexpr void parse_header(const std::byte* p, H& h) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    const auto one = [&]<size_t N>(std::integral_constant<size_t, N>) {
      constexpr auto kBound = std::get<N>(H::kFields);
      using T = std::remove_cvref_t<decltype(h.*(kBound.member))>;
      if constexpr (is_byte_array<T>) {
        for (size_t i = 0; i < sizeof(T); ++i) (h.*(kBound.member))[i] = p[kBound.field.byte + i];
      } else {
        h.*(kBound.member) = from_wire<T>(detail::load_field<kBound.field, H::kSize>(p));
      }
    };
    (one(std::integral_constant<size_t, I>{}), ...);
  }
  (std::make_index_sequence<kFieldCount<H>>{});
}

template <class H>
constexpr H parse_header(const std::byte* p) {
  H h;
  parse_header(p, h);
  return h;
}

// Writes H's H::kSize bytes in words as wide as fit; values wider than their field are cut.
template <class H>
constexpr void emit_header(const H& h, std::byte* p) {
  const auto word = [&]<size_t Start, size_t Bytes>(std::integral_constant<size_t, Start>,
                                                    std::integral_constant<size_t, Bytes>) {
    uint64_t value = 0;
    const auto add = [&](const auto& bound) {
      using T = std::remove_cvref_t<decltype(h.*(bound.member))>;
      if constexpr (!is_byte_array<T>) {
        value |= detail::contribution(bound.field, to_wire(h.*(bound.member)), Start, Bytes);
      }
    };
    std::apply([&](const auto&... bound) { (add(bound), ...); }, H::kFields);
    store_wire(p + Start, static_cast<detail::Word<Bytes>>(value));
  };
  constexpr size_t kEights = H::kSize / 8 * 8;
  [&]<size_t... W>(std::index_sequence<W...>) {
    (word(std::integral_constant<size_t, W * 8>{}, std::integral_constant<size_t, 8>{}), ...);
  }
  (std::make_index_sequence<H::kSize / 8>{});
  if constexpr ((H::kSize & 4) != 0) {
    word(std::integral_constant<size_t, kEights>{}, std::integral_constant<size_t, 4>{});
  }
  if constexpr ((H::kSize & 2) != 0) {
    word(std::integral_constant<size_t, H::kSize - 2>{}, std::integral_constant<size_t, 2>{});
  }
  static_assert(H::kSize % 2 == 0);
  const auto bytes = [&](const auto& bound) {
    using T = std::remove_cvref_t<decltype(h.*(bound.member))>;
    if constexpr (is_byte_array<T>) {
      for (size_t i = 0; i < sizeof(T); ++i) p[bound.field.byte + i] = (h.*(bound.member))[i];
    }
  };
  std::apply([&](const auto&... bound) { (bytes(bound), ...); }, H::kFields);
}

// The Field of a member: field_of<&Bth::psn>.
template <auto Member>
struct FieldOf;
template <class H, class T, T H::*Member>
struct FieldOf<Member> {
  using Header = H;
  using Value = T;
  static constexpr Field find() {
    Field found;
    const auto look = [&](const auto& bound) {
      if constexpr (std::same_as<decltype(bound.member), T H::*>) {
        if (bound.member == Member) found = bound.field;
      }
    };
    std::apply([&](const auto&... bound) { (look(bound), ...); }, H::kFields);
    return found;
  }
  static constexpr Field value = find();
};
template <auto Member>
inline constexpr Field field_of = FieldOf<Member>::value;

// A header inside checked bytes, of which single fields are read without parsing the rest:
// view.get<&Bth::psn>(). It borrows the bytes.
template <class H>
class HeaderView {
 public:
  static std::optional<HeaderView> over(std::span<const std::byte> bytes) {
    if (bytes.size() < H::kSize) return std::nullopt;
    return HeaderView(bytes.data());
  }
  template <auto Member>
  typename FieldOf<Member>::Value get() const {
    static_assert(std::same_as<typename FieldOf<Member>::Header, H>);
    return from_wire<typename FieldOf<Member>::Value>(
        detail::load_field<field_of<Member>, H::kSize>(bytes_));
  }
  H value() const { return parse_header<H>(bytes_); }

 private:
  explicit HeaderView(const std::byte* bytes) : bytes_(bytes) {}
  const std::byte* bytes_;
};

// Every bit of the header belongs to exactly one field.
template <class H>
consteval bool fields_cover_exactly() {
  std::array<uint8_t, H::kSize * 8> owners{};
  bool inside = true;
  const auto mark = [&](const auto& bound) {
    for (size_t b = bound.field.first_bit(); b < bound.field.end_bit(); ++b) {
      if (b < owners.size()) {
        ++owners[b];
      } else {
        inside = false;
      }
    }
  };
  std::apply([&](const auto&... bound) { (mark(bound), ...); }, H::kFields);
  for (uint8_t n : owners) {
    if (n != 1) return false;
  }
  return inside;
}

// parse then emit gives the same bytes, for patterns that set every bit apart from its neighbours.
template <class H>
consteval bool bytes_round_trip() {
  for (unsigned pattern : {0x00u, 0xffu, 0xa5u, 0x5au, 0x01u}) {
    std::array<std::byte, H::kSize> in{};
    std::array<std::byte, H::kSize> out{};
    for (size_t i = 0; i < in.size(); ++i) {
      const unsigned step = pattern == 0 || pattern == 0xff ? 0 : static_cast<unsigned>(i) * 37;
      in[i] = static_cast<std::byte>((pattern + step) & 0xff);
      out[i] = static_cast<std::byte>(0x3c);
    }
    emit_header(parse_header<H>(in.data()), out.data());
    if (in != out) return false;
  }
  return true;
}

#define FV_CHECK_LAYOUT(Header)                                       \
  static_assert(::farverbs::wire::fields_cover_exactly<Header>(),     \
                #Header ": fields overlap or leave bits undeclared"); \
  static_assert(::farverbs::wire::bytes_round_trip<Header>(), #Header ": parse and emit disagree")

}  // namespace farverbs::wire
