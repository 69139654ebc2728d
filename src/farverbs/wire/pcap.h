// Captured packets in files: classic pcap (libpcap's format, both byte orders, micro- and
// nanosecond stamps) and pcapng's section, interface, enhanced and simple packet blocks
// (draft-ietf-opsawg-pcapng) are read; classic pcap with nanoseconds is written. For tools, tests
// and the simulator; not the packet path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farverbs/base/result.h"
#include "farverbs/base/time.h"

namespace farverbs::wire {

// LINKTYPE_ values (tcpdump.org/linktypes.html); others are handed on as they are.
enum class LinkType : uint32_t {
  ethernet = 1,
  raw_bsd = 12,  // raw IP in some old files
  raw_ip = 101,
  linux_sll = 113,
  ipv4 = 228,
  ipv6 = 229,
  linux_sll2 = 276,
};

struct CapturedPacket {
  uint64_t number = 0;  // from 1
  Time time;            // since the epoch
  LinkType link = LinkType::ethernet;
  uint32_t original_length = 0;     // on the wire; more than data.size() if the capture cut it
  std::span<const std::byte> data;  // valid until the reader's next call
};

// Where a reader's bytes come from.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Gives up to `size` bytes at `to` and returns how many; 0 at the end or after an error.
  virtual size_t read(std::byte* to, size_t size) = 0;
};

class PcapReader {
 public:
  // "-" is the standard input. The error names the file and what is wrong with it.
  static Result<PcapReader> open(const std::string& path);
  // `name` is what error messages call the source.
  static Result<PcapReader> from(std::unique_ptr<ByteSource> source, std::string name);
  // A file's bytes, borrowed for the reader's life.
  static Result<PcapReader> from_bytes(std::span<const std::byte> bytes, std::string name);

  // The next packet, nothing at the end, or an error if the file breaks off or makes no sense.
  Result<std::optional<CapturedPacket>> next();

 private:
  struct Interface {
    LinkType link = LinkType::ethernet;
    uint32_t snap_length = 0;
    uint64_t units_per_second = 1'000'000;
  };

  PcapReader(std::unique_ptr<ByteSource> source, std::string name)
      : source_(std::move(source)), name_(std::move(name)) {}
  Error broken(const std::string& what) const;
  size_t read(std::byte* to, size_t size);
  Result<void> read_header();
  Result<void> read_section(std::span<const std::byte, 8> block_start);
  Result<std::optional<CapturedPacket>> next_classic();
  Result<std::optional<CapturedPacket>> next_block();
  Result<void> add_interface(std::span<const std::byte> body);
  Result<std::optional<CapturedPacket>> packet_of_block(uint32_t type,
                                                        std::span<const std::byte> body);
  uint16_t u16(const std::byte* p) const;
  uint32_t u32(const std::byte* p) const;

  std::unique_ptr<ByteSource> source_;
  std::string name_;
  bool big_endian_ = false;
  bool blocks_ = false;  // pcapng
  std::vector<Interface> interfaces_;
  std::vector<std::byte> buffer_;
  uint64_t count_ = 0;
};

// Writes a classic pcap file with nanosecond stamps in the machine's byte order.
class PcapWriter {
 public:
  static Result<PcapWriter> create(const std::string& path, LinkType link = LinkType::ethernet);
  Result<void> write(Time time, std::span<const std::byte> data);
  // Also done by the destructor, which cannot tell of errors.
  Result<void> close();

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  using File = std::unique_ptr<std::FILE, Close>;
  PcapWriter(File file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  File file_;
  std::string path_;
};

}  // namespace farverbs::wire
