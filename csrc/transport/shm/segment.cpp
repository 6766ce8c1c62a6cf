#include "transport/shm/segment.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "core/error.hpp"
#include "core/process_generation.hpp"
#include "core/process_watch.hpp"

namespace hpcomm::shm {
namespace {

[[noreturn]] void throw_no_memory(const Geometry& geometry, const char* step, int error) {
  detail::throw_error(Errc::transport, -1, "no shared memory: ", step, " of ",
                      geometry.total_bytes(), " bytes (", geometry.size, " rings of ",
                      geometry.ring_bytes, " bytes, ", SharedGroup::kSlots, " slots of ",
                      geometry.slot_bytes, " bytes) failed: ", std::strerror(error),
                      "; free memory, raise the limit on it, or lower HPCOMM_RING_BYTES or "
                      "HPCOMM_SLOT_BYTES");
}

struct Unnamed {
  int descriptor;
  bool in_dev_shm;  // where a container may bound the memory
};

Unnamed open_unnamed(const Nonce& nonce) {
  const int descriptor = memfd_create("hpcomm", MFD_CLOEXEC);
  if (descriptor >= 0 || (errno != ENOSYS && errno != EPERM)) return {descriptor, false};
  const std::string name = "/hpcomm-" + to_hex(nonce);
  const int named = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (named >= 0) shm_unlink(name.c_str());
  return {named, true};
}

/// A container may bound /dev/shm to 64 MB; without the reservation, the first touch beyond it
/// would be fatal. Returns an errno.
int reserve(int descriptor, std::size_t nbytes) {
  return posix_fallocate(descriptor, 0, static_cast<off_t>(nbytes));
}

}  // namespace

Segment::~Segment() {
  close_descriptor();
  // In a forked child the range is not mapped, or is by now something else.
  if (base_ != nullptr && generation_ == process_generation())
    munmap(base_, geometry_.total_bytes());
}

Segment::Segment(Segment&& other) noexcept { *this = std::move(other); }

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(geometry_, other.geometry_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(generation_, other.generation_);
  return *this;
}

void Segment::close_descriptor() noexcept {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

bool Segment::map_memory(int descriptor) noexcept {
  void* address =
      mmap(nullptr, geometry_.total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return false;
  madvise(address, geometry_.total_bytes(), MADV_DONTFORK);
  base_ = static_cast<std::byte*>(address);
  generation_ = process_generation();
  return true;
}

Segment Segment::initialise(int descriptor, const Geometry& geometry, int rank,
                            const Nonce& nonce) {
  Segment segment;
  segment.geometry_ = geometry;
  segment.descriptor_ = descriptor;
  if (!segment.map_memory(descriptor)) throw_no_memory(geometry, "mapping", errno);
  auto* header = new (segment.base_) SegmentHeader;
  header->rank = rank;
  header->size = geometry.size;
  header->pid = getpid();
  header->start_time = process_start_time(getpid());
  header->slot_bytes = geometry.slot_bytes;
  header->ring_bytes = geometry.ring_bytes;
  header->total_bytes = geometry.total_bytes();
  header->nonce = nonce;
  for (int sender = 0; sender < geometry.size; ++sender) new (segment.ring(sender)) RingLines;
  return segment;
}

Segment Segment::create(const Geometry& geometry, int rank, const Nonce& nonce) {
  const auto [descriptor, in_dev_shm] = open_unnamed(nonce);
  if (descriptor < 0) throw_no_memory(geometry, "creation", errno);
  int error = 0;
  if (in_dev_shm)
    error = reserve(descriptor, geometry.total_bytes());
  else if (ftruncate(descriptor, static_cast<off_t>(geometry.total_bytes())) != 0)
    error = errno;
  if (error != 0) {
    ::close(descriptor);
    throw_no_memory(geometry, in_dev_shm ? "reservation in /dev/shm" : "sizing", error);
  }
  return initialise(descriptor, geometry, rank, nonce);
}

Segment Segment::create_named(const Geometry& geometry, int rank, const Nonce& nonce,
                              const std::string& name) {
  const int descriptor = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) throw_no_memory(geometry, "creation under a name", errno);
  const int error = reserve(descriptor, geometry.total_bytes());
  if (error != 0) {
    ::close(descriptor);
    shm_unlink(name.c_str());
    throw_no_memory(geometry, "reservation in /dev/shm", error);
  }
  return initialise(descriptor, geometry, rank, nonce);
}

Segment Segment::map(int descriptor, const Geometry& geometry, int rank, const Nonce& nonce,
                     std::string& why_not) {
  Segment segment;
  segment.descriptor_ = descriptor;
  segment.geometry_ = geometry;
  struct stat status{};
  if (fstat(descriptor, &status) != 0 ||
      static_cast<std::size_t>(status.st_size) != geometry.total_bytes()) {
    why_not = "another size than announced";
    return {};
  }
  if (!segment.map_memory(descriptor)) {
    why_not = std::string("mapping failed: ") + std::strerror(errno);
    return {};
  }
  segment.close_descriptor();
  const SegmentHeader& header = segment.header();
  if (header.magic != kMagic || header.version != kVersion || header.nonce != nonce ||
      header.rank != rank) {
    why_not = "the memory of somebody else";
    return {};
  }
  return segment;
}

Nonce make_nonce() {
  Nonce nonce{};
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    detail::throw_error(Errc::transport, -1, "no random numbers: ", std::strerror(errno));
  return nonce;
}

std::string to_hex(const Nonce& nonce) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : nonce) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

void check_geometry(const Geometry& geometry) {
  HPCOMM_CHECK(std::has_single_bit(geometry.ring_bytes) && geometry.ring_bytes >= kPageBytes,
               Errc::invalid_argument, "the size of a ring must be a power of two of at least ",
               kPageBytes, " bytes, not ", geometry.ring_bytes, "; correct HPCOMM_RING_BYTES");
  HPCOMM_CHECK(geometry.slot_bytes > 0 && geometry.slot_bytes % kPageBytes == 0,
               Errc::invalid_argument, "the size of a slot must be a multiple of ", kPageBytes,
               " bytes, not ", geometry.slot_bytes, "; correct HPCOMM_SLOT_BYTES");
  HPCOMM_CHECK(
      geometry.slot_bytes >= 64 * static_cast<std::size_t>(geometry.size), Errc::invalid_argument,
      "slots of ", geometry.slot_bytes, " bytes are too small for ", geometry.size,
      " ranks; set HPCOMM_SLOT_BYTES to at least ", 64 * static_cast<std::size_t>(geometry.size));
}

}  // namespace hpcomm::shm
