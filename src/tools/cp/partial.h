// A file that is being received, and what survives when that is interrupted. The data grows in
// `.NAME.farverbs-partial`; `.NAME.farverbs-state` beside it says which source it comes from (size,
// mtime, identity, extents) and holds the CRC of each piece that was verified. The final name
// appears by rename(2) when everything is there. Nothing in the state file is trusted: on resuming,
// a piece counts as present only if its bytes in the partial file still have the recorded CRC, so a
// crash that lost pages but not the notes costs time, never content.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "farverbs/base/result.h"
#include "tools/cp/fd.h"
#include "tools/cp/mapping.h"
#include "tools/cp/plan.h"

namespace farverbs::tools::copy {

// What must be the same for an earlier partial file to be of use.
struct SourceIdentity {
  uint64_t size = 0;
  int64_t mtime_ns = 0;
  std::string identity;
  std::vector<Extent> extents;
  uint64_t fingerprint() const;
};

class PartialFile {
 public:
  // Opens or creates the pair of `name` in `directory` (which stays the caller's but must stay
  // open) and reserves the file's space. EBUSY: another transfer has it; ENOSPC with how much is
  // missing.
  static Result<PartialFile> open(int directory, const std::string& name,
                                  const SourceIdentity& source, const PiecePlan& plan);
  PartialFile(PartialFile&&) noexcept = default;
  PartialFile& operator=(PartialFile&&) noexcept = default;

  int fd() const { return data_.get(); }
  // The file is in memory (tmpfs): its space was seen to be there, but is not reserved.
  bool reserves_late() const { return reserves_late_; }
  // The CRC that an earlier attempt noted for the piece; its bytes are to be checked against it.
  std::optional<uint64_t> noted_crc(uint64_t piece) const;
  void note(uint64_t piece, uint64_t crc);

  // Gives the file its mode, time and final name. `sync`: data and name reach the disk before this
  // returns. On an error the partial file stays.
  Result<void> commit(uint32_t mode, int64_t mtime_ns, bool sync);
  // Removes the pair.
  void discard();

 private:
  PartialFile() = default;
  Result<void> open_data();
  Result<void> reserve(const PiecePlan& plan, const SourceIdentity& source);
  Result<bool> adopt_state(uint64_t pieces, uint64_t fingerprint);
  void create_state(uint64_t pieces, uint64_t fingerprint);

  int directory_ = -1;
  std::string name_;
  Fd data_;
  bool found_data_ = false;  // an earlier attempt left a partial file
  bool reserves_late_ = false;
  Mapping state_;  // header and notes; unmapped for files that need none
  uint64_t pieces_ = 0;
};

}  // namespace farverbs::tools::copy
