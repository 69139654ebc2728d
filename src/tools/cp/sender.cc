#include "tools/cp/sender.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "tools/cp/checksum.h"
#include "tools/cp/location.h"

namespace farverbs::tools::copy {
namespace {

// Records that the receiver may have to hold; it posts buffers for that many.
constexpr uint64_t kMaxUnverifiedPieces = 1024;
constexpr size_t kMaxOutstandingNameBytes = size_t{4} << 20;
constexpr size_t kMaxBatchBytes = size_t{64} << 10;
// How far ahead of the sending position the disk is asked to read.
constexpr uint64_t kReadAheadBytes = UINT64_C(32) << 20;
constexpr auto kTick = Duration::milliseconds(100);
// Then it is worth looking at what has arrived.
constexpr unsigned kPiecesPerTurn = 8;
constexpr unsigned kEventsPerTurn = 64;

size_t name_bytes(const Entry& entry) {
  return entry.path.size() + entry.target.size() + entry.extents.size() * 32 + 128;
}

Error broken(const char* what) { return {EPROTO, fmt::format("the peer {}", what)}; }

}  // namespace

Sender::Sender(Link& link, Walk walk, Observer& observer)
    : link_(link),
      walk_(std::move(walk)),
      observer_(observer),
      window_bytes_(link.suggested_window_bytes()) {}

bool Sender::may_send() const {
  return bytes_in_flight_ < window_bytes_ && unverified_pieces_ < kMaxUnverifiedPieces;
}

bool Sender::may_announce() const {
  return !walk_done_ && sources_.size() + kMaxEntriesPerMessage <= kMaxOutstandingFiles &&
         outstanding_bytes_ < kMaxOutstandingNameBytes;
}

Result<void> Sender::run(const std::function<bool()>& stop) {
  while (!finished_) {
    if (stop()) return Error{ECANCELED, "interrupted"};
    if (may_announce()) FV_TRY(announce());
    FV_ASSIGN(const bool sent, pump());
    // While there is work, what has happened is only looked at; otherwise it is waited for.
    const Duration patience = sent || may_announce() ? Duration() : kTick;
    for (unsigned i = 0; i < kEventsPerTurn && !finished_; ++i) {
      FV_ASSIGN(const auto event, link_.next(i == 0 ? patience : Duration()));
      if (!event.has_value()) break;
      FV_TRY(handle(*event));
    }
    observer_.on_tick();
  }
  return {};
}

Result<void> Sender::announce() {
  Entries batch;
  size_t bytes = 0;
  while (batch.entries.size() < kMaxEntriesPerMessage &&
         batch.notes.size() < kMaxEntriesPerMessage && bytes < kMaxBatchBytes) {
    auto found = walk_.next();
    if (!found.has_value()) {
      batch.last = walk_done_ = true;
      break;
    }
    if (Note* note = std::get_if<Note>(&*found)) {
      observer_.on_problem(note->path, note->message);
      bytes += note->path.size() + note->message.size();
      batch.notes.push_back(std::move(*note));
      continue;
    }
    Entry& entry = std::get<Entry>(*found);
    entry.id = next_id_++;
    FV_ASSIGN(PiecePlan plan, PiecePlan::create(entry.size, entry.data_extents()));
    auto source = std::make_shared<Source>();
    source->entry = entry;
    source->plan = std::move(plan);
    bytes += name_bytes(entry);
    outstanding_bytes_ += name_bytes(entry);
    if (entry.kind == EntryKind::kFile) observer_.on_found(1, source->plan.data_bytes());
    sources_.emplace(entry.id, std::move(source));
    batch.entries.push_back(std::move(entry));
  }
  if (walk_done_) observer_.on_all_found();
  return link_.send(encode(batch));
}

uint64_t Sender::Window::take_next() {
  if (!again.empty()) {
    const uint64_t index = again.front();
    again.pop_front();
    return index;
  }
  const auto [first, count] = grant.pieces[range];
  const uint64_t index = first + in_range;
  if (++in_range == count) {
    ++range;
    in_range = 0;
  }
  return index;
}

Result<bool> Sender::pump() {
  bool sent = false;
  for (unsigned i = 0; i < kPiecesPerTurn && !ready_.empty() && may_send(); ++i) {
    Window& window = ready_.front();
    if (window.has_next()) FV_TRY(send_piece(window));
    if (!window.has_next()) sent_.splice(sent_.end(), ready_, ready_.begin());
    sent = true;
  }
  return sent;
}

Result<void> Sender::send_piece(Window& window) {
  Source& source = *window.source;
  const Mapping& mapping = window.memory->mapping;
  const uint64_t index = window.take_next();
  const Piece piece = source.plan.at(index);
  const uint64_t offset = piece.offset - window.grant.offset;
  if (offset + piece.length + kReadAheadBytes / 2 > window.advised) {
    const uint64_t from = std::max(window.advised, offset);
    mapping.advise(from, kReadAheadBytes, MADV_WILLNEED);
    window.advised = from + kReadAheadBytes;
  }
  // The hash brings the bytes into the cache right before the transport reads them. The check comes
  // after it: what was hashed was the announced version, and what is sent must match the hash.
  const std::optional<uint64_t> crc = crc64_of_mapping(mapping.data() + offset, piece.length);
  if (!crc.has_value() || !Walk::unchanged(source.fd.get(), source.entry)) {
    return abort(source, AbortReason::kChanged);
  }
  Record record;
  record.kind = RecordKind::kPiece;
  record.file = source.entry.id;
  record.piece = index;
  record.crc = *crc;
  record.length = piece.length;
  const uint64_t ticket = next_ticket_++;
  FV_TRY(link_.write(window.memory->region, offset, piece.length, window.grant.address + offset,
                     window.grant.key, record, ticket));
  flights_.emplace(ticket, Flight{window.source, window.memory, piece.length});
  bytes_in_flight_ += piece.length;
  ++source.unanswered;
  source.unanswered_bytes += piece.length;
  ++unverified_pieces_;
  return {};
}

Result<void> Sender::abort(Source& source, AbortReason reason) {
  if (source.aborted) return {};
  source.aborted = true;
  for (std::list<Window>* windows : {&ready_, &sent_}) {
    for (Window& window : *windows) {
      if (window.source.get() != &source) continue;
      window.again.clear();
      window.range = window.grant.pieces.size();
    }
  }
  // The record follows the writes under way, so that the receiver knows when its memory is quiet.
  Record record;
  record.kind = RecordKind::kAbort;
  record.reason = reason;
  record.file = source.entry.id;
  return link_.notify(record);
}

Result<void> Sender::handle(const LinkEvent& event) {
  if (const auto* done = std::get_if<WriteDone>(&event)) return on_write_done(*done);
  if (const auto* record = std::get_if<Record>(&event)) return on_record(*record);
  FV_ASSIGN(Message message, decode_message(std::get<std::string>(event)));
  if (const auto* goodbye = std::get_if<Goodbye>(&message)) {
    return Error{goodbye->error != 0 ? goodbye->error : EIO, printable(goodbye->message)};
  }
  auto* answers = std::get_if<Answers>(&message);
  if (answers == nullptr) return broken("sent a message that is not its turn");
  return on_answers(std::move(*answers));
}

Result<void> Sender::on_write_done(const WriteDone& done) {
  const auto flight = flights_.find(done.ticket);
  if (flight == flights_.end()) return {};
  if (done.source_lost) {
    const std::string path = walk_.path_of(flight->second.source->entry.path);
    return Error{ESTALE, fmt::format("'{}' changed while being sent", printable(path))};
  }
  bytes_in_flight_ -= flight->second.bytes;
  flights_.erase(flight);
  return {};
}

Result<void> Sender::answered(Source& source, uint64_t bytes) {
  if (source.unanswered == 0 || source.unanswered_bytes < bytes) {
    return broken("answered for a piece that was never sent");
  }
  --source.unanswered;
  source.unanswered_bytes -= bytes;
  --unverified_pieces_;
  return {};
}

Result<void> Sender::on_record(const Record& record) {
  const auto at = sources_.find(record.file);
  // Records and messages travel apart: a file may be settled before the answer to its last piece.
  if (at == sources_.end()) return {};
  Source& source = *at->second;
  if (record.piece >= source.plan.count()) {
    return broken("answered for a piece that does not exist");
  }
  const uint64_t bytes = source.plan.at(record.piece).length;
  FV_TRY(answered(source, bytes));
  const uint64_t offset = source.plan.window_of(record.piece).offset;
  const auto is_its_window = [&](const Window& w) {
    return w.source.get() == &source && w.grant.offset == offset;
  };
  std::list<Window>* list = &sent_;
  auto window = std::find_if(sent_.begin(), sent_.end(), is_its_window);
  if (window == sent_.end()) {
    list = &ready_;
    window = std::find_if(ready_.begin(), ready_.end(), is_its_window);
    if (window == ready_.end()) return {};
  }
  if (record.kind == RecordKind::kAgain) {
    observer_.on_retransmission();
    if (source.aborted) return {};
    window->again.push_back(record.piece);
    ready_.splice(ready_.begin(), *list, window);
    return {};
  }
  if (record.kind != RecordKind::kVerified) return broken("sent a record that is not its turn");
  observer_.on_bytes(bytes, false);
  if (window->unverified > 0) --window->unverified;
  if (window->unverified == 0) list->erase(window);
  return {};
}

Result<void> Sender::on_answers(Answers answers) {
  for (Grant& grant : answers.grants) FV_TRY(on_grant(std::move(grant)));
  for (const Settled& settled : answers.settled) FV_TRY(on_settled(settled));
  if (answers.finished) {
    if (!walk_done_ || !sources_.empty()) return broken("finished early");
    finished_ = true;
  }
  return {};
}

Result<void> Sender::on_settled(const Settled& settled) {
  const auto at = sources_.find(settled.file);
  if (at == sources_.end()) return broken("settled a file that was never announced");
  const std::shared_ptr<Source> source = at->second;
  const std::string& path = source->entry.path;
  if (settled.resumed_bytes != 0) observer_.on_bytes(settled.resumed_bytes, true);
  if (settled.ok) {
    observer_.on_bytes(source->unanswered_bytes, false);
    if (source->entry.kind == EntryKind::kFile) observer_.on_file_done(path, settled.unchanged);
  } else {
    observer_.on_problem(path, settled.message);
    // The receiver gave up: it keeps its memory until it hears that nothing follows.
    if (source->granted) FV_TRY(abort(*source, AbortReason::kRefused));
  }
  unverified_pieces_ -= source->unanswered;
  outstanding_bytes_ -= name_bytes(source->entry);
  for (std::list<Window>* windows : {&ready_, &sent_}) {
    windows->remove_if([&](const Window& window) { return window.source == source; });
  }
  sources_.erase(at);
  return {};
}

Result<void> Sender::check_grant(const Source& source, const Grant& grant) const {
  uint64_t next = 0;
  for (const auto& [first, count] : grant.pieces) {
    if (first < next || first >= source.plan.count() || count == 0 ||
        count > source.plan.count() - first) {
      return broken("granted memory for pieces that do not exist");
    }
    next = first + count;
    if (source.plan.window_of(first) != Extent{grant.offset, grant.length} ||
        next > source.plan.window_pieces(first).second) {
      return broken("granted memory for pieces of another window");
    }
  }
  if (next == 0) return broken("granted memory for no piece");
  for (const std::list<Window>* windows : {&ready_, &sent_}) {
    if (windows->size() > kMaxOutstandingFiles) return broken("granted too much memory");
    for (const Window& window : *windows) {
      if (window.source.get() == &source && window.grant.offset == grant.offset) {
        return broken("granted the same memory twice");
      }
    }
  }
  return {};
}

Result<void> Sender::on_grant(Grant grant) {
  const auto at = sources_.find(grant.file);
  if (at == sources_.end() || at->second->entry.kind != EntryKind::kFile) {
    return broken("granted memory for no file");
  }
  const std::shared_ptr<Source> source = at->second;
  FV_TRY(check_grant(*source, grant));
  source->granted = true;
  if (source->aborted) return {};
  if (!source->fd.valid()) {
    Result<Fd> opened = walk_.open_file(source->entry);
    if (!opened.ok()) {
      return abort(*source, opened.error().code == ESTALE ? AbortReason::kChanged
                                                          : AbortReason::kUnreadable);
    }
    source->fd = std::move(opened).value();
  }
  Window window;
  window.source = source;
  window.memory = std::make_shared<Memory>();
  for (const auto& [first, count] : grant.pieces) window.unverified += count;
  FV_ASSIGN(window.memory->mapping,
            Mapping::map(source->fd.get(), grant.offset, grant.length, false));
  FV_ASSIGN(window.memory->region, link_.lend(window.memory->mapping.bytes()));
  window.grant = std::move(grant);
  ready_.push_back(std::move(window));
  return {};
}

}  // namespace farverbs::tools::copy
