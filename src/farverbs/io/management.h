// How a datagram to QP1 finds the process that it concerns. Any process of a host that shares the
// UDP port may get one from the kernel; its ManagementRouter hands it over, on a unix socket, to
// the one that has bound the name of the service that is asked for, or whose agent number the
// communication identifier carries. The receiving end is a ManagementSocket, whose owner's own
// datagrams come the same way.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "farverbs/base/time.h"
#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/handover.h"
#include "farverbs/io/port.h"
#include "farverbs/io/slot_names.h"
#include "farverbs/wire/cm_messages.h"

namespace farverbs::io {

struct ManagementDatagram {
  Endpoint source;
  Endpoint destination;
  uint8_t traffic_class = 0;
  std::span<const std::byte> mad;  // wire::kMadSize bytes
};

class ManagementSocket {
 public:
  // EADDRINUSE: the name is somebody's.
  static Result<ManagementSocket> bind(const std::string& name);
  int fd() const { return fd_.get(); }
  // Its mad is in `storage`. False if there is none.
  bool receive(ManagementDatagram& datagram, wire::Mad& storage) const;

 private:
  explicit ManagementSocket(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

// Whether somebody has bound the name.
bool is_bound(const std::string& name);

class ManagementRouter {
 public:
  // What is kept for receivers whose queue is full: the kernel's holds some ten messages.
  static constexpr size_t kMostWaiting = 4096;

  static Result<std::unique_ptr<ManagementRouter>> create();

  void route(Time now, const ManagementDatagram& datagram);
  // What waits is tried again; to be called at next_retry() at the latest.
  void retry(Time now);
  Time next_retry() const { return next_retry_; }

  // What a sender should know whose datagram is for nobody of this host: a service that nobody has
  // bound, a connection whose process has ended.
  struct Answer {
    Endpoint from;
    Endpoint to;
    uint8_t traffic_class = 0;
    wire::Mad mad;
  };
  std::optional<Answer> poll_answer();

 private:
  static constexpr Duration kRetryAfter = Duration::microseconds(200);
  static constexpr Duration kGiveUpAfter = Duration::seconds(1);
  // A client that was told of a service in another way is often faster than the service is with
  // binding it, so a refusal waits a little; but few do, since anybody can ask for nothing.
  static constexpr size_t kMostPatient = 64;
  static constexpr Duration kPatience = Duration::milliseconds(500);
  static constexpr Duration kLookAgainAfter = Duration::milliseconds(10);

  enum class Handed { kDone, kNobody, kFull };
  struct Waiting {
    AbstractAddress name;
    Time since;
    std::array<std::byte, kHandoverHeaderBytes + wire::kMadSize> bytes;
  };

  explicit ManagementRouter(FileDescriptor fd) : fd_(std::move(fd)) {}
  struct Patient {
    Time since;
    Endpoint source;
    Endpoint destination;
    uint8_t traffic_class;
    wire::Mad mad;
    ManagementDatagram datagram() const { return {source, destination, traffic_class, mad}; }
  };
  Handed hand_to_owner(Time now, const wire::MadHeader& header, const ManagementDatagram& datagram);
  void answer(const wire::MadHeader& header, const ManagementDatagram& datagram);
  Handed hand_over(Time now, const std::string& name, const ManagementDatagram& datagram);
  Handed send(const AbstractAddress& name, std::span<const std::byte> bytes) const;
  void retry_waiting(Time now);
  void retry_patient(Time now);

  FileDescriptor fd_;
  std::deque<Waiting> waiting_;
  std::deque<Patient> patient_;
  std::deque<Answer> answers_;
  Time waiting_again_ = Time::never();
  Time patient_again_ = Time::never();
  Time next_retry_ = Time::never();
};

}  // namespace farverbs::io
