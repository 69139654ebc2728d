// Sender: the end of a session that has the files. It announces them in batches ahead of time, and
// as the receiver grants memory it checks, hashes and writes the pieces, one-sided, each followed
// by its record. No step waits for a round trip that another file could use. The source's pages are
// the memory that is sent.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>

#include "tools/cp/link.h"
#include "tools/cp/mapping.h"
#include "tools/cp/messages.h"
#include "tools/cp/observer.h"
#include "tools/cp/walk.h"

namespace farverbs::tools::copy {

class Sender {
 public:
  Sender(Link& link, Walk walk, Observer& observer);

  // Until the receiver says that it has finished. The Error is one of the link or of the protocol;
  // files that could not be copied are told to the observer. `stop`: asked now and then; true ends
  // the session with ECANCELED.
  Result<void> run(const std::function<bool()>& stop);

 private:
  // What a window's writes read from. A write under way holds it, whatever becomes of its file.
  struct Memory {
    Mapping mapping;
    Region region;  // goes before the mapping does
  };
  struct Source {
    Entry entry;
    PiecePlan plan;
    Fd fd;
    bool granted = false;  // any memory, ever
    bool aborted = false;
    uint64_t unanswered = 0;  // pieces whose record the receiver has not answered
    uint64_t unanswered_bytes = 0;
  };
  // A granted window with the pieces that are still to be sent or verified.
  struct Window {
    std::shared_ptr<Source> source;
    Grant grant;
    std::shared_ptr<Memory> memory;
    size_t range = 0;  // next piece: the position in grant.pieces
    uint64_t in_range = 0;
    std::deque<uint64_t> again;
    uint64_t unverified = 0;  // pieces
    uint64_t advised = 0;     // bytes of the window that were asked from the disk
    bool has_next() const { return !again.empty() || range < grant.pieces.size(); }
    uint64_t take_next();
  };
  struct Flight {
    std::shared_ptr<Source> source;
    std::shared_ptr<Memory> memory;
    uint64_t bytes;
  };

  Result<void> announce();
  Result<bool> pump();
  Result<void> send_piece(Window& window);
  Result<void> abort(Source& source, AbortReason reason);
  Result<void> handle(const LinkEvent& event);
  Result<void> on_write_done(const WriteDone& done);
  Result<void> on_record(const Record& record);
  Result<void> on_answers(Answers answers);
  Result<void> on_settled(const Settled& settled);
  Result<void> on_grant(Grant grant);
  Result<void> check_grant(const Source& source, const Grant& grant) const;
  Result<void> answered(Source& source, uint64_t bytes);
  bool may_send() const;
  bool may_announce() const;

  Link& link_;
  Walk walk_;
  Observer& observer_;
  const uint64_t window_bytes_;
  bool walk_done_ = false;
  bool finished_ = false;
  uint32_t next_id_ = 0;
  uint64_t next_ticket_ = 0;
  size_t outstanding_bytes_ = 0;  // of names announced and not settled
  std::unordered_map<uint32_t, std::shared_ptr<Source>> sources_;
  std::list<Window> ready_;  // windows with pieces to send, in the order of their grants
  std::list<Window> sent_;   // windows whose pieces are all on their way
  std::unordered_map<uint64_t, Flight> flights_;  // by ticket: writes that are not done
  uint64_t bytes_in_flight_ = 0;
  uint64_t unverified_pieces_ = 0;
};

}  // namespace farverbs::tools::copy
