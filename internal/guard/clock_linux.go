package guard

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Now is the reading of CLOCK_BOOTTIME, the clock of all instants in this package: time since boot, going
// on during suspend.
func Now() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("CLOCK_BOOTTIME: " + err.Error()) // there since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}

// alarmRepeat is how soon a process that was stopped again after an alarm is resumed again. It is well
// below the smallest time between the Kill deadline and the end of a lease (50 ms).
const alarmRepeat = 20 * time.Millisecond

// An alarm is a kernel timer on CLOCK_BOOTTIME whose signal is SIGCONT. The kernel resumes a stopped
// process when it generates SIGCONT, whether or not the process handles it: this is what wakes a supervisor
// from SIGSTOP (and from a machine's sleep) at a deadline. It must be armed before, since a stopped process
// can arm nothing.
type alarm struct {
	id    int32
	valid bool
	at    time.Duration // what it is armed for; zero if it is not
}

// sigevent is struct sigevent of the kernel's ABI: 64 bytes.
type sigevent struct {
	value  uintptr
	signo  int32
	notify int32
	_      [64 - 8 - unsafe.Sizeof(uintptr(0))]byte
}

func newAlarm() alarm {
	var a alarm
	ev := sigevent{signo: int32(unix.SIGCONT)} // notify 0 is SIGEV_SIGNAL
	_, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_BOOTTIME,
		uintptr(unsafe.Pointer(&ev)), uintptr(unsafe.Pointer(&a.id)))
	a.valid = errno == 0
	return a
}

// set arms the alarm for an instant, from which on it repeats; zero disarms it.
func (a *alarm) set(at time.Duration) {
	if !a.valid || at == a.at {
		return
	}
	a.at = at
	var spec unix.ItimerSpec
	if at != 0 {
		spec.Value = unix.NsecToTimespec(int64(at))
		spec.Interval = unix.NsecToTimespec(int64(alarmRepeat))
	}
	const absolute = 1 // TIMER_ABSTIME
	unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(a.id), absolute, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

func (a *alarm) drop() {
	if a.valid {
		unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(a.id), 0, 0)
		*a = alarm{}
	}
}
