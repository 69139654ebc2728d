#include "farverbs/wire/pcap.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "farverbs/base/byte_order.h"

namespace farverbs::wire {
namespace {

constexpr uint32_t kMagicMicroseconds = 0xA1B2'C3D4;
constexpr uint32_t kMagicNanoseconds = 0xA1B2'3C4D;
constexpr uint32_t kSectionBlock = 0x0A0D'0D0A;
constexpr uint32_t kSectionOrder = 0x1A2B'3C4D;
constexpr uint32_t kInterfaceBlock = 1;
constexpr uint32_t kSimplePacketBlock = 3;
constexpr uint32_t kEnhancedPacketBlock = 6;
constexpr uint16_t kOptionTimeResolution = 9;
constexpr uint32_t kMaxSnap = 1 << 20;  // longer records are damage, not packets
constexpr uint32_t kMaxBlock = 1 << 24;
constexpr size_t kFileHeader = 24;
constexpr size_t kRecordHeader = 16;
constexpr uint64_t kNanosecondsPerSecond = 1'000'000'000;

Time time_of(uint64_t units, uint64_t units_per_second) {
  const uint64_t seconds = units / units_per_second;
  const auto rest = static_cast<__uint128_t>(units % units_per_second) * kNanosecondsPerSecond;
  return Time::from_ns(static_cast<int64_t>(seconds * kNanosecondsPerSecond +
                                            static_cast<uint64_t>(rest / units_per_second)));
}

class FileSource final : public ByteSource {
 public:
  explicit FileSource(std::FILE* file) : file_(file) {}
  ~FileSource() override {
    if (file_ != stdin) std::fclose(file_);
  }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  size_t read(std::byte* to, size_t size) override {
    errno = 0;
    const size_t n = std::fread(to, 1, size, file_);
    if (n == 0 && std::ferror(file_) != 0) failure_ = errno;
    return n;
  }
  int failure() const { return failure_; }

 private:
  std::FILE* file_;
  int failure_ = 0;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t read(std::byte* to, size_t size) override {
    const size_t n = std::min(size, bytes_.size());
    if (n != 0) std::memcpy(to, bytes_.data(), n);
    bytes_ = bytes_.subspan(n);
    return n;
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

uint16_t PcapReader::u16(const std::byte* p) const {
  const uint16_t v = load_be<uint16_t>(p);
  return big_endian_ ? v : byte_swap(v);
}
uint32_t PcapReader::u32(const std::byte* p) const {
  const uint32_t v = load_be<uint32_t>(p);
  return big_endian_ ? v : byte_swap(v);
}

Error PcapReader::broken(const std::string& what) const {
  return invalid(name_ + ": " + what +
                 (count_ != 0 ? " after packet " + std::to_string(count_) : ""));
}

size_t PcapReader::read(std::byte* to, size_t size) {
  size_t done = 0;
  while (done < size) {
    const size_t n = source_->read(to + done, size - done);
    if (n == 0) break;
    done += n;
  }
  return done;
}

Result<PcapReader> PcapReader::open(const std::string& path) {
  std::FILE* const file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) return Error::from_errno("cannot open " + path);
  auto source = std::make_unique<FileSource>(file);
  const FileSource* const watched = source.get();
  PcapReader reader(std::move(source), path == "-" ? "standard input" : path);
  Result<void> header = reader.read_header();
  // A directory opens, but cannot be read.
  if (watched->failure() != 0) return Error::from_errno("cannot read " + path, watched->failure());
  if (!header.ok()) return std::move(header).error();
  return reader;
}

Result<PcapReader> PcapReader::from(std::unique_ptr<ByteSource> source, std::string name) {
  PcapReader reader(std::move(source), std::move(name));
  FV_TRY(reader.read_header());
  return reader;
}

Result<PcapReader> PcapReader::from_bytes(std::span<const std::byte> bytes, std::string name) {
  return from(std::make_unique<MemorySource>(bytes), std::move(name));
}

Result<void> PcapReader::read_header() {
  std::array<std::byte, kFileHeader> head{};
  const size_t got = read(head.data(), 8);
  if (got == 0) return broken("is empty, not a packet capture");
  if (got < 8)
    return broken("is not a packet capture (pcap or pcapng): only " + std::to_string(got) +
                  " bytes");
  const uint32_t magic = load_be<uint32_t>(head.data());
  if (magic == kSectionBlock) {
    blocks_ = true;
    return read_section(std::span<const std::byte, 8>(head.data(), 8));
  }
  big_endian_ = magic == kMagicMicroseconds || magic == kMagicNanoseconds;
  const uint32_t value = u32(head.data());
  if (value != kMagicMicroseconds && value != kMagicNanoseconds) {
    return broken("is not a packet capture (pcap or pcapng)");
  }
  if (read(head.data() + 8, kFileHeader - 8) != kFileHeader - 8) {
    return broken("is truncated inside the file header");
  }
  Interface interface;
  interface.link = static_cast<LinkType>(u32(head.data() + 20) & 0x0fff'ffff);
  interface.units_per_second = value == kMagicNanoseconds ? kNanosecondsPerSecond : 1'000'000;
  interfaces_.push_back(interface);
  return {};
}

Result<std::optional<CapturedPacket>> PcapReader::next() {
  return blocks_ ? next_block() : next_classic();
}

Result<std::optional<CapturedPacket>> PcapReader::next_classic() {
  std::array<std::byte, kRecordHeader> head;
  const size_t got = read(head.data(), head.size());
  if (got == 0) return std::optional<CapturedPacket>();
  if (got < head.size()) return broken("is truncated inside a packet's header");
  const uint32_t length = u32(head.data() + 8);
  if (length > kMaxSnap)
    return broken("is damaged: a packet of " + std::to_string(length) + " bytes");
  buffer_.resize(length);
  if (read(buffer_.data(), length) != length) return broken("is truncated inside a packet");
  CapturedPacket packet;
  packet.number = ++count_;
  const Interface& interface = interfaces_[0];
  packet.time =
      time_of(uint64_t{u32(head.data())} * interface.units_per_second + u32(head.data() + 4),
              interface.units_per_second);
  packet.link = interface.link;
  packet.original_length = u32(head.data() + 12);
  packet.data = buffer_;
  return std::optional(packet);
}

// A section header block whose first 8 bytes (type, length) have been read; it sets the byte order.
Result<void> PcapReader::read_section(std::span<const std::byte, 8> block_start) {
  std::array<std::byte, 4> order{};
  if (read(order.data(), 4) != 4) return broken("is truncated inside a section header");
  const uint32_t mark = load_be<uint32_t>(order.data());
  big_endian_ = mark == kSectionOrder;
  if (!big_endian_ && byte_swap(mark) != kSectionOrder) {
    return broken("is damaged: a section without a byte order");
  }
  const uint32_t length = u32(block_start.data() + 4);
  if (length < 28 || length > kMaxBlock || length % 4 != 0) {
    return broken("is damaged: a section header of " + std::to_string(length) + " bytes");
  }
  buffer_.resize(length - 12);
  if (read(buffer_.data(), buffer_.size()) != buffer_.size()) {
    return broken("is truncated inside a section header");
  }
  interfaces_.clear();
  return {};
}

Result<std::optional<CapturedPacket>> PcapReader::next_block() {
  while (true) {
    std::array<std::byte, 8> head;
    const size_t got = read(head.data(), head.size());
    if (got == 0) return std::optional<CapturedPacket>();
    if (got < head.size()) return broken("is truncated inside a block's header");
    const uint32_t type = u32(head.data());
    if (type == kSectionBlock) {  // a palindrome: the same in both orders
      FV_TRY(read_section(head));
      continue;
    }
    const uint32_t length = u32(head.data() + 4);
    if (length < 12 || length > kMaxBlock || length % 4 != 0) {
      return broken("is damaged: a block of " + std::to_string(length) + " bytes");
    }
    buffer_.resize(length - 8);
    if (read(buffer_.data(), buffer_.size()) != buffer_.size()) {
      return broken("is truncated inside a block");
    }
    const std::span<const std::byte> body(buffer_.data(), length - 12);
    if (type == kInterfaceBlock) {
      FV_TRY(add_interface(body));
    } else if (type == kEnhancedPacketBlock || type == kSimplePacketBlock) {
      return packet_of_block(type, body);
    }
  }
}

Result<void> PcapReader::add_interface(std::span<const std::byte> body) {
  if (body.size() < 8) return broken("is damaged: a short interface block");
  Interface interface;
  interface.link = static_cast<LinkType>(u16(body.data()));
  interface.snap_length = u32(body.data() + 4);
  for (std::span<const std::byte> options = body.subspan(8); options.size() >= 4;) {
    const size_t length = u16(options.data() + 2);
    const size_t padded = 4 + (length + 3) / 4 * 4;
    if (padded > options.size()) break;
    if (u16(options.data()) == kOptionTimeResolution && length >= 1) {
      const auto resolution = std::to_integer<unsigned>(options[4]);
      const unsigned exponent = resolution & 0x7f;
      if (exponent > ((resolution & 0x80) != 0 ? 40u : 12u)) {
        return broken("has time stamps of an unknown resolution");
      }
      interface.units_per_second = 1;
      for (unsigned i = 0; i < exponent; ++i) {
        interface.units_per_second *= (resolution & 0x80) != 0 ? 2 : 10;
      }
    }
    options = options.subspan(padded);
  }
  interfaces_.push_back(interface);
  return {};
}

Result<std::optional<CapturedPacket>> PcapReader::packet_of_block(uint32_t type,
                                                                  std::span<const std::byte> body) {
  const bool enhanced = type == kEnhancedPacketBlock;
  const size_t fixed = enhanced ? 20 : 4;
  if (body.size() < fixed) return broken("is damaged: a short packet block");
  const size_t index = enhanced ? u32(body.data()) : 0;
  if (index >= interfaces_.size()) return broken("is damaged: a packet of an undeclared interface");
  const Interface& interface = interfaces_[index];
  CapturedPacket packet;
  size_t length = 0;
  if (enhanced) {
    const uint64_t units = uint64_t{u32(body.data() + 4)} << 32 | u32(body.data() + 8);
    packet.time = time_of(units, interface.units_per_second);
    length = u32(body.data() + 12);
    packet.original_length = u32(body.data() + 16);
  } else {
    packet.original_length = u32(body.data());
    length = packet.original_length;
    if (interface.snap_length != 0) length = std::min<size_t>(length, interface.snap_length);
  }
  if (length > body.size() - fixed) return broken("is damaged: a packet longer than its block");
  packet.number = ++count_;
  packet.link = interface.link;
  packet.data = body.subspan(fixed, length);
  return std::optional(packet);
}

Result<PcapWriter> PcapWriter::create(const std::string& path, LinkType link) {
  File file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return Error::from_errno("cannot create " + path);
  struct {
    uint32_t magic = kMagicNanoseconds;
    uint16_t major = 2;
    uint16_t minor = 4;
    uint32_t zone = 0;
    uint32_t accuracy = 0;
    uint32_t snap_length = kMaxSnap;
    uint32_t link_type = 0;
  } header;
  static_assert(sizeof header == kFileHeader);
  header.link_type = static_cast<uint32_t>(link);
  if (std::fwrite(&header, sizeof header, 1, file.get()) != 1) {
    return Error::from_errno("cannot write " + path);
  }
  return PcapWriter(std::move(file), path);
}

Result<void> PcapWriter::write(Time time, std::span<const std::byte> data) {
  const auto ns = static_cast<uint64_t>(std::max<int64_t>(time.ns(), 0));
  const auto length = static_cast<uint32_t>(data.size());
  const uint32_t record[4] = {static_cast<uint32_t>(ns / kNanosecondsPerSecond),
                              static_cast<uint32_t>(ns % kNanosecondsPerSecond), length, length};
  static_assert(sizeof record == kRecordHeader);
  if (file_ == nullptr || std::fwrite(record, sizeof record, 1, file_.get()) != 1 ||
      (length != 0 && std::fwrite(data.data(), length, 1, file_.get()) != 1)) {
    return Error::from_errno("cannot write " + path_);
  }
  return {};
}

Result<void> PcapWriter::close() {
  if (file_ != nullptr && std::fclose(file_.release()) != 0) {
    return Error::from_errno("cannot write " + path_);
  }
  return {};
}

}  // namespace farverbs::wire
