package guard

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/internal/guard/early"
)

const (
	// freezePasses bounds the search for processes that are still running; each pass finds what the last one's
	// victims had started before they were stopped.
	freezePasses = 50
	// sweepPause is how long a round waits for the killed to end.
	sweepPause = 2 * time.Millisecond
	// emptyLooks is how often nothing must be found in a row: a process that forks another and ends at once
	// is seen in about two of three looks.
	emptyLooks = 5
)

// A sweep ends processes that carry a variable in their environment.
type sweep struct {
	entry   []byte
	self    int
	own     map[int]bool          // not to be ended
	stopped map[int]time.Duration // by start time, as numbers are reused
	ended   map[int]time.Duration
	refused map[int]bool
}

// EndByEnv ends every process whose environment holds entry ("NAME=value"), and all that descend from
// these, until none is left or ctx ends. Never ended are the caller and its guards with what they started.
// It returns how many were ended and which are still there. The next owner of a mutex uses it when both
// supervisors of the last one were killed in the same instant.
//
// A process that has overwritten or cleared its environment is found only while a parent that has not is
// alive; the environment of other users' processes can be read by root only.
func EndByEnv(ctx context.Context, entry string) (ended int, stuck []int, err error) {
	if entry == "" || entry[0] == '=' || !bytes.ContainsRune([]byte(entry), '=') {
		return 0, nil, errors.New("not a variable: " + entry)
	}
	s := &sweep{entry: []byte(entry), self: os.Getpid(), ended: map[int]time.Duration{}, refused: map[int]bool{}}
	for empty := 0; ; {
		found := s.freeze(ctx)
		for pid := range found {
			s.signal(pid, found[pid], unix.SIGKILL)
		}
		if empty++; !s.onlyRefused(found) {
			empty = 0
		}
		if empty == emptyLooks {
			return s.gone(found), keys(found), nil
		}
		select {
		case <-ctx.Done():
			found = s.find()
			return s.gone(found), keys(found), ctx.Err()
		case <-time.After(sweepPause):
		}
	}
}

// gone counts what was ended and is not among the found.
func (s *sweep) gone(found map[int]time.Duration) (n int) {
	for pid, started := range s.ended {
		if at, ok := found[pid]; !ok || at != started {
			n++
		}
	}
	return n
}

func keys(m map[int]time.Duration) []int {
	var all []int
	for pid := range m {
		all = append(all, pid)
	}
	slices.Sort(all)
	return all
}

// freeze stops everything that is meant before anything is killed: a dead parent no longer tells who its
// children were. It returns what is meant.
func (s *sweep) freeze(ctx context.Context) (found map[int]time.Duration) {
	s.stopped = map[int]time.Duration{}
	for range freezePasses {
		news := s.pounce()
		found = s.find()
		for pid, started := range found {
			news = s.halt(pid, started) || news
		}
		if !news || ctx.Err() != nil {
			break
		}
	}
	return found
}

// pounce stops what carries the variable at first sight, the newest first: a process that forks another and
// ends is gone before a whole look is over.
func (s *sweep) pounce() (news bool) {
	all := numbered("/proc")
	for i := len(all) - 1; i >= 0; i-- {
		if pid := all[i]; !s.own[pid] && pid != s.self && s.carries(pid) {
			if st, ok := readStat(pid); ok && st.state != 'Z' {
				news = s.halt(pid, st.started()) || news
			}
		}
	}
	return news
}

// halt stops a process, and reports whether it was not stopped by this sweep before.
func (s *sweep) halt(pid int, started time.Duration) (news bool) {
	if at, ok := s.stopped[pid]; ok && at == started {
		return false
	}
	if !s.signal(pid, started, unix.SIGSTOP) {
		return false
	}
	s.stopped[pid] = started
	return true
}

// signal reports whether it could be sent.
func (s *sweep) signal(pid int, started time.Duration, sig unix.Signal) bool {
	err := pinned(pid, sig, func(pid int) bool {
		st, ok := readStat(pid)
		return ok && st.started() == started
	})
	if err == unix.EPERM {
		s.refused[pid] = true
	}
	if err == nil {
		s.ended[pid] = started
	}
	return err == nil
}

func (s *sweep) onlyRefused(found map[int]time.Duration) bool {
	for pid := range found {
		if !s.refused[pid] {
			return false
		}
	}
	return true
}

// find lists what is meant and alive, with the start times.
func (s *sweep) find() map[int]time.Duration {
	procs := map[int]stat{}
	kids := map[int][]int{}
	for _, pid := range numbered("/proc") {
		if st, ok := readStat(pid); ok {
			procs[pid] = st
			kids[st.ppid] = append(kids[st.ppid], pid)
		}
	}
	own := map[int]bool{}
	spread(guardPIDs(), kids, own)
	own[s.self] = true
	s.own = own
	var roots []int
	for pid := range procs {
		if !own[pid] && s.carries(pid) {
			roots = append(roots, pid)
		}
	}
	meant := map[int]bool{}
	for pid := range own {
		meant[pid] = true // not to be spread into
	}
	spread(roots, kids, meant)
	found := map[int]time.Duration{}
	for pid := range meant {
		if st := procs[pid]; !own[pid] && st.state != 'Z' && st.state != 'X' {
			found[pid] = st.started()
		}
	}
	return found
}

// spread adds processes and their descendants to a set.
func spread(pids []int, kids map[int][]int, set map[int]bool) {
	for len(pids) > 0 {
		pid := pids[len(pids)-1]
		pids = pids[:len(pids)-1]
		if !set[pid] {
			set[pid] = true
			pids = append(pids, kids[pid]...)
		}
	}
}

func (s *sweep) carries(pid int) bool {
	env, err := readProc(pid, "environ")
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.Equal(entry, s.entry) {
			return true
		}
	}
	return false
}

// Holding lists the live guards with this tag whose job may be running. Any user can make a process look
// like one.
func Holding(tag string) (pids []int, err error) {
	all := numbered("/proc")
	if all == nil {
		return nil, errors.New("cannot list /proc")
	}
	for _, pid := range all {
		if holds(pid, tag) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// holds tells whether a process is a guard with this tag whose job may be running.
func holds(pid int, tag string) bool {
	if processName(pid) != holdingName {
		return false
	}
	want := append([]byte(early.GuardName+"\x00"+tag), 0)
	arguments, err := readProc(pid, "cmdline")
	return err == nil && bytes.Equal(arguments[:min(len(arguments), len(want))], want)
}

// Above tells whether this process is part of the job of the guard with this tag that a stamp names, see
// [Order.Stamp]: whether that guard is among its ancestors.
func Above(stamp, tag string) bool {
	number, ticks, _ := strings.Cut(stamp, ":")
	guard, err := strconv.Atoi(number)
	if err != nil || guard <= 0 {
		return false
	}
	for pid := os.Getppid(); pid > 0; {
		s, ok := readStat(pid)
		if !ok {
			return false
		}
		if pid == guard {
			return strconv.FormatInt(s.ticks, 10) == ticks && holds(pid, tag)
		}
		pid = s.ppid
	}
	return false
}
