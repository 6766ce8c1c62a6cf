// NumPy arrays as buffers of the core. Only what memory safety needs is checked here; messages for
// users are the business of hpcomm/checks.py and hpcomm/buffers.py.
#pragma once

#include <pybind11/numpy.h>

#include <cstddef>
#include <memory>

#include "core/buffer.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"

namespace hpcomm::python {

inline ConstBuffer readable(const pybind11::array& array) {
  HPCOMM_CHECK((array.flags() & pybind11::array::c_style) != 0, Errc::internal,
               "array to read is not C-contiguous");
  return {static_cast<const std::byte*>(array.data()), static_cast<std::size_t>(array.nbytes())};
}

inline Buffer writable(pybind11::array& array) {
  HPCOMM_CHECK((array.flags() & pybind11::array::c_style) != 0, Errc::internal,
               "array to write is not C-contiguous");
  HPCOMM_CHECK(array.writeable(), Errc::internal, "array to write is read-only");
  return {static_cast<std::byte*>(array.mutable_data()), static_cast<std::size_t>(array.nbytes())};
}

inline DType dtype_of(int code) {
  HPCOMM_CHECK(code >= 0 && code < kNumDTypes, Errc::internal, "no element type has the number ",
               code);
  return static_cast<DType>(code);
}

inline std::size_t elements(ConstBuffer buffer, DType dtype) {
  HPCOMM_CHECK(buffer.nbytes % size_bytes(dtype) == 0, Errc::internal, buffer.nbytes,
               " bytes are no whole number of ", name_of(dtype));
  return buffer.nbytes / size_bytes(dtype);
}

/// A reference that C++ may hold and drop on any thread: the drop takes the GIL. After the
/// interpreter is gone it leaks.
inline std::shared_ptr<void> keep_alive(pybind11::object object) {
  return {new pybind11::object(std::move(object)), [](void* pointer) {
            if (Py_IsInitialized() == 0) return;
            pybind11::gil_scoped_acquire gil;
            delete static_cast<pybind11::object*>(pointer);
          }};
}

}  // namespace hpcomm::python
