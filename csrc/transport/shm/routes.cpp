#include "transport/shm/routes.hpp"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <string_view>

#include "transport/shm/segment.hpp"

namespace hpcomm::shm {
namespace {

socklen_t address_of(const Nonce& owner, sockaddr_un& address) noexcept {
  address = {};
  address.sun_family = AF_UNIX;
  const std::string name = "hpcomm-" + to_hex(owner);
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // a leading zero byte: abstract
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

int new_socket() noexcept { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

union ControlBuffer {
  cmsghdr aligned;
  char bytes[CMSG_SPACE(sizeof(int))];
};

void send_descriptor(int connection, int descriptor) noexcept {
  char byte = 'h';
  iovec data{&byte, 1};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  static_cast<void>(sendmsg(connection, &message, MSG_NOSIGNAL));
}

bool peer_credentials(int connection, ucred& credentials) noexcept {
  socklen_t length = sizeof credentials;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0;
}

}  // namespace

int open_by_proc(pid_t pid, int descriptor, std::string& why_not) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(descriptor);
  char target[256];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  if (length < 0) {
    why_not = path + ": " + std::strerror(errno);
    return -1;
  }
  // Never open what is not ours: opening a device or a pipe has effects.
  const std::string_view name(target, static_cast<std::size_t>(length));
  if (!name.starts_with("/memfd:hpcomm") && name.find("/hpcomm-") == std::string_view::npos) {
    why_not = path + " is " + std::string(name);
    return -1;
  }
  const int opened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) why_not = path + ": " + std::strerror(errno);
  return opened;
}

DescriptorSocket::DescriptorSocket(const Nonce& own) : own_(own) {}

DescriptorSocket::~DescriptorSocket() {
  if (listener_ >= 0) ::close(listener_);
  for (const int connection : connections_)
    if (connection >= 0) ::close(connection);
}

void DescriptorSocket::listen(int backlog) noexcept {
  listener_ = new_socket();
  sockaddr_un address;
  const socklen_t length = address_of(own_, address);
  if (listener_ >= 0 && bind(listener_, reinterpret_cast<sockaddr*>(&address), length) == 0)
    static_cast<void>(::listen(listener_, backlog));
}

std::size_t DescriptorSocket::connect(const Nonce& owner, std::string& why_not) noexcept {
  const int connection = new_socket();
  connections_.push_back(connection);
  sockaddr_un address;
  const socklen_t length = address_of(owner, address);
  if (connection < 0 || ::connect(connection, reinterpret_cast<sockaddr*>(&address), length) != 0)
    why_not = std::string("socket: ") + std::strerror(errno);
  return connections_.size() - 1;
}

void DescriptorSocket::serve(int descriptor) noexcept {
  if (listener_ < 0) return;
  for (;;) {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) break;
    ucred peer{};
    if (peer_credentials(connection, peer) && peer.uid == geteuid())
      send_descriptor(connection, descriptor);
    ::close(connection);
  }
  ::close(listener_);
  listener_ = -1;
}

int DescriptorSocket::receive(std::size_t connection, pid_t& pid, std::string& why_not) noexcept {
  char byte = 0;
  iovec data{&byte, 1};
  ControlBuffer control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  if (recvmsg(connections_[connection], &message, MSG_CMSG_CLOEXEC) <= 0) {
    if (why_not.empty()) why_not = std::string("socket: ") + std::strerror(errno);
    return -1;
  }
  const cmsghdr* rights = CMSG_FIRSTHDR(&message);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) {
    why_not = "socket: no descriptor came";
    return -1;
  }
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(rights), sizeof(int));
  ucred owner{};
  if (peer_credentials(connections_[connection], owner)) pid = owner.pid;
  return descriptor;
}

std::string shm_name(const Nonce& owner) { return "/hpcomm-" + to_hex(owner); }

int open_by_name(const Nonce& owner, std::string& why_not) {
  const int descriptor = shm_open(shm_name(owner).c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0) why_not = "/dev/shm: " + std::string(std::strerror(errno));
  return descriptor;
}

}  // namespace hpcomm::shm
