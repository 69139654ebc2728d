#include "tools/cp/receiver.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "tools/cp/checksum.h"
#include "tools/cp/location.h"
#include "tools/cp/tree.h"

namespace farverbs::tools::copy {
namespace {

constexpr unsigned kAttempts = 3;
constexpr uint64_t kPopulateAheadBytes = UINT64_C(16) << 20;
constexpr size_t kMaxDirectoryBytes = size_t{64} << 20;
constexpr size_t kFlushAnswers = 128;
constexpr unsigned kEventsPerTurn = 64;
constexpr auto kTick = Duration::milliseconds(100);

Error broken(const char* what) { return {EPROTO, fmt::format("the peer {}", what)}; }

Error system_error(const char* what, const std::string& name) {
  return Error::from_errno(fmt::format("{} '{}'", what, printable(name)));
}

const char* reason_text(AbortReason reason) {
  switch (reason) {
    case AbortReason::kChanged:
      return "it changed while being sent; copy it again when nobody writes to it";
    case AbortReason::kUnreadable:
      return "the sender cannot read it (permission denied, or it is gone)";
    default:
      return "the sender gave it up";
  }
}

}  // namespace

Receiver::Receiver(Link& link, Target target, ReceiverOptions options, Observer& observer)
    : link_(link), target_(std::move(target)), options_(std::move(options)), observer_(observer) {}

std::string Receiver::full_path(const std::string& path) const {
  return path.empty() ? target_.name : target_.name + "/" + path;
}

Result<void> Receiver::run(const std::function<bool()>& stop) {
  while (!all_announced_ || !pending_.empty() || !files_.empty()) {
    if (stop()) return Error{ECANCELED, "interrupted"};
    FV_ASSIGN(const bool granted, grant_windows());
    FV_ASSIGN(const bool started, start_pending());
    const bool busy = granted || started;
    if (!busy) FV_TRY(flush(true));
    for (unsigned i = 0; i < kEventsPerTurn; ++i) {
      FV_ASSIGN(const auto event, link_.next(i == 0 && !busy ? kTick : Duration()));
      if (!event.has_value()) break;
      FV_TRY(handle(*event));
    }
    FV_TRY(flush(false));
    observer_.on_tick();
  }
  finish_directories();
  answers_.finished = true;
  return flush(true);
}

Result<void> Receiver::flush(bool force) {
  const size_t count = answers_.grants.size() + answers_.settled.size();
  if (count == 0 && !answers_.finished) return {};
  if (!force && count < kFlushAnswers) return {};
  const std::string text = encode(answers_);
  answers_ = Answers();
  return link_.send(text);
}

Result<void> Receiver::handle(const LinkEvent& event) {
  if (const auto* record = std::get_if<Record>(&event)) return on_record(*record);
  const auto* text = std::get_if<std::string>(&event);
  if (text == nullptr) return {};
  FV_ASSIGN(Message message, decode_message(*text));
  if (const auto* goodbye = std::get_if<Goodbye>(&message)) {
    return Error{goodbye->error != 0 ? goodbye->error : EIO, printable(goodbye->message)};
  }
  auto* entries = std::get_if<Entries>(&message);
  if (entries == nullptr || all_announced_) return broken("sent a message that is not its turn");
  return on_entries(std::move(*entries));
}

Result<void> Receiver::on_entries(Entries entries) {
  for (Entry& entry : entries.entries) {
    FV_TRY(check_peer_path(entry.path));
    if (pending_.size() + files_.size() >= kMaxOutstandingFiles) {
      return broken("announced more files than agreed");
    }
    pending_.push_back(std::move(entry));
  }
  for (const Note& note : entries.notes) observer_.on_problem(note.path, note.message);
  if (entries.last) {
    all_announced_ = true;
    observer_.on_all_found();
  }
  return {};
}

Result<bool> Receiver::start_pending() {
  bool started = false;
  for (int i = 0; i < 32; ++i) {
    if (pending_.empty() || files_.size() >= options_.open_files ||
        mapped_bytes_ >= options_.mapped_bytes) {
      break;
    }
    Entry entry = std::move(pending_.front());
    pending_.pop_front();
    if (files_.count(entry.id) != 0) return broken("announced two files with one number");
    FV_TRY(start(std::move(entry)));
    started = true;
  }
  return started;
}

Result<std::shared_ptr<Fd>> Receiver::parent_of(const std::string& path) {
  if (cached_parent_ && path == cached_parent_path_) return cached_parent_;
  FV_ASSIGN(Fd fd, open_beneath(target_.parent.get(), path, O_PATH | O_DIRECTORY, 0, Links::kNone));
  cached_parent_ = std::make_shared<Fd>(std::move(fd));
  cached_parent_path_ = path;
  return cached_parent_;
}

Result<void> Receiver::start(Entry entry) {
  const SplitPath split = split_path(full_path(entry.path));
  Result<std::shared_ptr<Fd>> parent = parent_of(split.parent);
  Result<void> made = parent.ok() ? Result<void>() : Result<void>(parent.error());
  if (made.ok()) {
    switch (entry.kind) {
      case EntryKind::kFile:
        return start_file(std::move(entry), *parent, split.name);
      case EntryKind::kDirectory:
        made = make_directory(entry, (*parent)->get(), split.name);
        break;
      case EntryKind::kLink:
        made = make_link(entry, (*parent)->get(), split.name);
        break;
    }
  }
  if (made.ok()) {
    settle(entry, {});
  } else {
    // This one thing failed; the peer's misbehaviour would end the session instead.
    if (made.error().code == EPROTO) return made;
    settle(entry, {.ok = false, .message = made.error().message});
  }
  return {};
}

Result<void> Receiver::make_directory(const Entry& entry, int parent, const std::string& name) {
  directory_bytes_ += entry.path.size() + sizeof(Directory);
  if (directory_bytes_ > kMaxDirectoryBytes) return broken("sent too many directories");
  // Ours alone until its content is complete; then it gets its mode.
  if (::mkdirat(parent, name.c_str(), 0700) == 0) {
    if (entry.path.empty()) {
      made_root_ = true;
      const std::string marker = full_path(kCopyingMarker);
      const Result<Fd> fd = open_beneath(target_.parent.get(), marker, O_WRONLY | O_CREAT | O_EXCL,
                                         0600, Links::kNone);
      if (fd.ok()) {
        [[maybe_unused]] const ssize_t written =
            ::write(fd->get(), options_.source_name.data(), options_.source_name.size());
      }
    }
  } else if (errno == EEXIST) {
    struct stat status;
    if (::fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
      return system_error("looking at", name);
    }
    if (!S_ISDIR(status.st_mode)) {
      return Error{ENOTDIR, fmt::format("'{}' exists there and is not a directory",
                                        printable(full_path(entry.path)))};
    }
  } else {
    return system_error("creating the directory", full_path(entry.path));
  }
  directories_.push_back({entry.path, entry.mode & 01777, entry.mtime_ns});
  return {};
}

Result<void> Receiver::make_link(const Entry& entry, int parent, const std::string& name) {
  const std::string temporary = partial_name(name);
  ::unlinkat(parent, temporary.c_str(), 0);
  const timespec times[2] = {{0, UTIME_OMIT}, to_timespec(entry.mtime_ns)};
  if (::symlinkat(entry.target.c_str(), parent, temporary.c_str()) != 0 ||
      ::utimensat(parent, temporary.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::renameat(parent, temporary.c_str(), parent, name.c_str()) != 0) {
    Error error = system_error("creating the link", full_path(entry.path));
    ::unlinkat(parent, temporary.c_str(), 0);
    return error;
  }
  return {};
}

// Whether the final name already holds this version of the file; an Error if it cannot be one.
Result<bool> Receiver::is_unchanged(const Entry& entry, int parent, const std::string& name) const {
  struct stat status;
  if (::fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
  if (S_ISDIR(status.st_mode)) {
    return Error{EISDIR, fmt::format("'{}' is a directory there, and a file would replace it",
                                     printable(full_path(entry.path)))};
  }
  if (options_.always || !S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) != entry.size || mtime_ns(status) != entry.mtime_ns) {
    return false;
  }
  if ((status.st_mode & 0777) == (entry.mode & 0777)) return true;
  const Fd fd(::openat(parent, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return fd.valid() && ::fchmod(fd.get(), entry.mode & 0777) == 0;
}

Result<void> Receiver::start_file(Entry entry, std::shared_ptr<Fd> directory,
                                  const std::string& name) {
  Result<PiecePlan> plan = PiecePlan::create(entry.size, entry.data_extents());
  if (!plan.ok())
    return Error{EPROTO, "the peer sent a malformed message: " + plan.error().message};
  observer_.on_found(1, plan->data_bytes());
  const Result<bool> unchanged = is_unchanged(entry, directory->get(), name);
  if (!unchanged.ok()) {
    settle(entry, {.ok = false, .message = unchanged.error().message});
    return {};
  }
  if (*unchanged) {
    settle(entry, {.unchanged = true, .resumed_bytes = plan->data_bytes()});
    return {};
  }
  const SourceIdentity identity{entry.size, entry.mtime_ns, entry.identity, entry.data_extents()};
  Result<PartialFile> partial = PartialFile::open(directory->get(), name, identity, *plan);
  if (!partial.ok()) {
    settle(entry, {.ok = false, .message = partial.error().message});
    return {};
  }
  File file;
  const uint32_t id = entry.id;
  file.entry = std::move(entry);
  file.plan = std::move(plan).value();
  file.directory = std::move(directory);
  file.partial = std::move(partial).value();
  File& kept = files_.emplace(id, std::move(file)).first->second;
  if (kept.plan.count() > 0) {
    wanting_.push_back(id);
  } else {
    finish_if_complete(kept);
  }
  return {};
}

Result<bool> Receiver::grant_windows() {
  bool granted = false;
  while (!wanting_.empty() && mapped_bytes_ < options_.mapped_bytes) {
    const auto at = files_.find(wanting_.front());
    if (at == files_.end() || at->second.failed || at->second.cursor == at->second.plan.count()) {
      wanting_.pop_front();
      continue;
    }
    FV_TRY(open_window(at->second));
    granted = true;
    // A long file's noted pieces are read to be checked; the rest of the session goes on meanwhile.
    break;
  }
  return granted;
}

Result<void> Receiver::open_window(File& file) {
  const auto [first, last] = file.plan.window_pieces(file.cursor);
  const Extent place = file.plan.window_of(file.cursor);
  file.cursor = last;
  Window window;
  window.offset = place.offset;
  window.first_piece = first;
  window.memory = std::make_shared<Memory>();
  Result<Mapping> mapping =
      Mapping::map(file.partial->fd(), place.offset, place.length, /*writable=*/true);
  if (!mapping.ok()) {
    fail(file, mapping.error().message);
    return {};
  }
  window.memory->mapping = std::move(mapping).value();
  Grant grant;
  grant.file = file.entry.id;
  grant.offset = place.offset;
  grant.length = place.length;
  for (uint64_t index = first; index < last; ++index) {
    const Piece piece = file.plan.at(index);
    const std::optional<uint64_t> noted = file.partial->noted_crc(index);
    const bool present = noted.has_value() && crc64_of_mapping(window.memory->mapping.data() +
                                                                   (piece.offset - place.offset),
                                                               piece.length) == noted;
    window.missing.push_back(!present);
    if (present) {
      file.resumed_bytes += piece.length;
      observer_.on_bytes(piece.length, true);
      continue;
    }
    ++window.missing_count;
    if (!grant.pieces.empty() && grant.pieces.back().first + grant.pieces.back().second == index) {
      ++grant.pieces.back().second;
    } else {
      grant.pieces.emplace_back(index, 1);
    }
  }
  if (window.missing_count == 0) {
    finish_if_complete(file);
    return {};
  }
  FV_ASSIGN(window.memory->region, link_.expose(window.memory->mapping.bytes()));
  grant.address = window.memory->region.address;
  grant.key = window.memory->region.key;
  mapped_bytes_ += place.length;
  file.granted = true;
  // A hole that is given pages is none any more.
  if (place.length >= kPieceBytes && file.plan.data_bytes() == file.plan.size()) {
    window.populating = true;
    if (file.partial->reserves_late()) window.memory->file = Fd(::dup(file.partial->fd()));
    window.memory->mapping.advise(0, place.length, MADV_HUGEPAGE);
    populate_ahead(window, file.plan.at(grant.pieces[0].first).offset - place.offset);
  }
  file.windows.push_back(std::move(window));
  answers_.grants.push_back(std::move(grant));
  return {};
}

void Receiver::populate_ahead(Window& window, uint64_t arrived) {
  const uint64_t end = std::min(arrived + kPopulateAheadBytes, window.memory->mapping.length());
  const uint64_t begin = std::max(window.populated, arrived);
  // In portions of some pieces, to spare the helper's wake-ups.
  if (end < begin + 4 * kPieceBytes && end != window.memory->mapping.length()) return;
  if (end <= begin) return;
  prefaulter_.populate(window.memory, window.memory->mapping, begin, end - begin,
                       window.memory->file.get(), window.offset + begin);
  window.populated = end;
}

Result<void> Receiver::on_record(const Record& record) {
  const auto at = files_.find(record.file);
  if (at == files_.end() || !at->second.granted) return broken("sent a record of an unknown file");
  if (record.kind == RecordKind::kPiece) return on_piece(at->second, record);
  if (record.kind == RecordKind::kAbort) return on_abort(at->second, record.reason);
  return broken("sent a record that is not its turn");
}

Result<void> Receiver::on_piece(File& file, const Record& record) {
  if (file.failed) return {};
  if (record.piece >= file.plan.count()) return broken("sent a piece that does not exist");
  const Piece piece = file.plan.at(record.piece);
  const auto window = std::find_if(file.windows.begin(), file.windows.end(), [&](const Window& w) {
    return record.piece >= w.first_piece && record.piece - w.first_piece < w.missing.size();
  });
  if (window == file.windows.end() || record.length != piece.length ||
      !window->missing[record.piece - window->first_piece]) {
    return broken("sent a piece that was not asked for");
  }
  const uint64_t offset = piece.offset - window->offset;
  const std::optional<uint64_t> crc =
      crc64_of_mapping(window->memory->mapping.data() + offset, piece.length);
  if (!crc.has_value()) {
    fail(file, "its space on the receiver's disk vanished while it was being written");
    return {};
  }
  Record answer = record;
  if (*crc != record.crc) {
    observer_.on_retransmission();
    if (++file.attempts[record.piece] >= kAttempts) {
      fail(file, fmt::format("its content at byte {} was corrupted {} times in a row on the way",
                             piece.offset, kAttempts));
      return {};
    }
    answer.kind = RecordKind::kAgain;
    return link_.notify(answer);
  }
  answer.kind = RecordKind::kVerified;
  FV_TRY(link_.notify(answer));
  file.partial->note(record.piece, *crc);
  observer_.on_bytes(piece.length, false);
  window->missing[record.piece - window->first_piece] = false;
  if (--window->missing_count > 0) {
    if (window->populating) populate_ahead(*window, offset);
    return {};
  }
  if (window->populating) prefaulter_.forget(window->memory);
  mapped_bytes_ -= window->memory->mapping.length();
  if (options_.sync) {
    // Starts writing early, so that the wait at the end is short.
    ::sync_file_range(file.partial->fd(), static_cast<off_t>(window->offset),
                      static_cast<off_t>(window->memory->mapping.length()), SYNC_FILE_RANGE_WRITE);
  }
  // Small ones go at once: waking the thread would cost more.
  if (window->memory->mapping.length() >= 16 * kPieceBytes) {
    prefaulter_.drop(std::move(window->memory));
  }
  file.windows.erase(window);
  finish_if_complete(file);
  return {};
}

Result<void> Receiver::on_abort(File& file, AbortReason reason) {
  if (!file.failed) {
    settle(file.entry, {.ok = false, .message = reason_text(reason)});
    // What was received belongs to no version of the file.
    if (reason == AbortReason::kChanged) file.partial->discard();
  }
  release(file);
  return {};
}

// `file` may be gone after this.
void Receiver::finish_if_complete(File& file) {
  if (file.failed || file.cursor != file.plan.count() || !file.windows.empty()) return;
  const Result<void> committed =
      file.partial->commit(file.entry.mode & 0777, file.entry.mtime_ns, options_.sync);
  if (!committed.ok()) return fail(file, committed.error().message);
  settle(file.entry, {.resumed_bytes = file.resumed_bytes});
  release(file);
}

// `file` may be gone after this.
void Receiver::fail(File& file, std::string message) {
  file.failed = true;
  settle(file.entry, {.ok = false, .message = std::move(message)});
  // Writes may be under way into its memory: it goes when the sender says that none follow.
  if (!file.granted) release(file);
}

// `file` is gone after this.
void Receiver::release(File& file) {
  for (const Window& window : file.windows) mapped_bytes_ -= window.memory->mapping.length();
  files_.erase(file.entry.id);
}

void Receiver::settle(const Entry& entry, Settled settled) {
  settled.file = entry.id;
  if (settled.ok) {
    if (settled.unchanged) observer_.on_bytes(settled.resumed_bytes, true);
    if (entry.kind == EntryKind::kFile) observer_.on_file_done(entry.path, settled.unchanged);
  } else {
    any_failed_ = true;
    observer_.on_problem(entry.path, settled.message);
  }
  answers_.settled.push_back(std::move(settled));
}

void Receiver::finish_directories() {
  // A directory with something missing is still being copied: the next attempt finds the marker.
  if (!any_failed_ && !directories_.empty() && directories_.front().path.empty()) {
    const Result<Fd> root =
        open_beneath(target_.parent.get(), target_.name, O_PATH | O_DIRECTORY, 0, Links::kNone);
    if (root.ok()) ::unlinkat(root->get(), kCopyingMarker, 0);
  }
  // Children first: what is created in a directory changes its time.
  for (auto directory = directories_.rbegin(); directory != directories_.rend(); ++directory) {
    const Result<Fd> fd = open_beneath(target_.parent.get(), full_path(directory->path),
                                       O_RDONLY | O_DIRECTORY, 0, Links::kNone);
    const timespec times[2] = {{0, UTIME_OMIT}, to_timespec(directory->mtime_ns)};
    if (!fd.ok() || ::fchmod(fd->get(), directory->mode) != 0 ||
        ::futimens(fd->get(), times) != 0) {
      observer_.on_problem(directory->path, "its mode and time could not be set");
    }
  }
}

}  // namespace farverbs::tools::copy
