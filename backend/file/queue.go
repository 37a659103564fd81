package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-lock/simba/lease"
)

const (
	queueName = "queue"
	// A joiner that was frozen between looking at the queue and entering it
	// holds a number from long ago and would enter in front.
	staleNumber = 100 * time.Millisecond
	// A half-made ticket is older than this only if its maker died.
	deadTemp = time.Minute
)

// ticket is a place in the queue: a locked file, named so that names sort by
// arrival.
type ticket struct {
	name string
	file *os.File
}

// ticketText is what a ticket tells about its waiter.
type ticketText struct {
	ID   string     `json:"id"`
	Info lease.Info `json:"info"`
}

// openQueue returns -1 if nobody waits.
func (p *place) openQueue(create bool) (int, error) {
	for range 20 {
		fd, err := open(p.dir, queueName, dirFlags|unix.O_NOFOLLOW, 0)
		switch {
		case err == nil:
			return fd, nil
		case !errors.Is(err, unix.ENOENT):
			return -1, sorted(p.path(queueName), err)
		case !create:
			return -1, nil
		}
		if err := p.makeDir(p.dir, queueName); err != nil {
			return -1, sorted(p.path(queueName), err)
		}
	}
	return -1, fmt.Errorf("%s comes and goes", p.path(queueName))
}

// tickets lists the queue in order, the dead ones too. What does not look like
// a ticket is none.
func tickets(q int) ([]string, error) {
	names, err := readNames(q)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return numberOf(n) == 0 })
	slices.Sort(names)
	return names, nil
}

// readNames lists an open directory, from its beginning.
func readNames(dir int) ([]string, error) {
	fd, err := open(dir, ".", dirFlags, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // it was removed
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), ".")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	return names, ignore(err, unix.ENOENT)
}

// numberOf is a ticket's sequence number; 0 if the name is not a ticket's.
func numberOf(name string) uint64 {
	num, rest, ok := strings.Cut(name, "-")
	if !ok || len(num) != 16 || len(rest) != 16 {
		return 0
	}
	n, err := strconv.ParseUint(num, 16, 63)
	if err != nil {
		return 0
	}
	return n
}

// live tells whether a ticket's owner is there. A ticket that is not an
// ordinary file is nobody's.
func (p *place) live(q int, name string) (bool, error) {
	fd, _, err := p.openFile(q, name, p.path(queueName+"/"+name), unix.O_RDONLY)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) || lease.IsPermanent(err) {
		return false, nil
	}
	if err != nil {
		return false, sorted(p.path(queueName+"/"+name), err)
	}
	defer unix.Close(fd)
	locked, err := isLocked(fd)
	return locked, sorted(p.path(queueName+"/"+name), err)
}

// ahead finds who is in front of a ticket, or of the end of the queue if own is
// empty: the first live one, the last one, and how many. Dead tickets that it
// passes are removed if tidy is set. found tells whether own is still there.
func (p *place) ahead(q int, own string, tidy bool) (a front, err error) {
	names, err := tickets(q)
	if err != nil {
		return a, sorted(p.path(queueName), err)
	}
	for _, n := range names {
		if n == own {
			a.found = true
			break
		}
		live, err := p.live(q, n)
		if err != nil {
			return a, err
		}
		if !live {
			if tidy {
				_ = unix.Unlinkat(q, n, 0)
			}
			continue
		}
		if a.first == "" {
			a.first = n
		}
		a.last = n
		a.count++
	}
	return a, nil
}

type front struct {
	first, last string
	count       int
	found       bool
}

// join enters the queue at its end.
func (p *place) join(c lease.Contender) (*ticket, error) {
	text, err := json.Marshal(ticketText{c.ID, c.Info})
	if err != nil {
		text, _ = json.Marshal(ticketText{ID: c.ID})
	}
	for range 20 {
		q, err := p.openQueue(true)
		if err != nil {
			return nil, err
		}
		t, err := p.enqueue(q, text)
		_ = unix.Close(q)
		if err != nil {
			return nil, sorted(p.path(queueName), err)
		}
		if t != nil {
			return t, nil
		}
	}
	return nil, fmt.Errorf("%s: cannot enter the queue", p.path(queueName))
}

// enqueue makes a ticket that is locked before it can be seen. It returns nil
// if the queue's directory was removed meanwhile or the number is stale.
func (p *place) enqueue(q int, text []byte) (*ticket, error) {
	tmp := ".t-" + random()
	fd, err := p.create(q, tmp)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // whoever was last to leave removed the directory
	}
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), tmp)
	t, err := p.fill(q, file, tmp, text)
	if t == nil {
		_ = unix.Unlinkat(q, tmp, 0)
		_ = file.Close()
	}
	return t, err
}

func (p *place) fill(q int, file *os.File, tmp string, text []byte) (*ticket, error) {
	fd := int(file.Fd())
	if ok, err := tryLock(fd); err != nil || !ok {
		return nil, err
	}
	if err := write(fd, text); err != nil {
		return nil, err
	}
	began := time.Now()
	names, err := tickets(q)
	if err != nil {
		return nil, err
	}
	number := uint64(1)
	if len(names) > 0 {
		number = numberOf(names[len(names)-1]) + 1
	}
	name := fmt.Sprintf("%016x-%s", number, random())
	if err := unix.Renameat(q, tmp, q, name); err != nil {
		return nil, ignore(err, unix.ENOENT) // taken for a dead one
	}
	if time.Since(began) > staleNumber {
		_ = unix.Unlinkat(q, name, 0)
		return nil, nil
	}
	return &ticket{name: name, file: file}, nil
}

// leave gives up a place. The last one out removes the directory.
func (p *place) leave(t *ticket) {
	q, err := p.openQueue(false)
	if err == nil && q >= 0 {
		_ = unix.Unlinkat(q, t.name, 0)
		p.sweep(q)
		_ = unix.Close(q)
	}
	_ = t.file.Close()
}

// sweep removes the queue's directory if it is empty, but for what somebody
// died over while he made his ticket.
func (p *place) sweep(q int) {
	if unix.Unlinkat(p.dir, queueName, unix.AT_REMOVEDIR) == nil {
		return
	}
	names, err := readNames(q)
	if err != nil {
		return
	}
	for _, n := range names {
		if numberOf(n) != 0 {
			return
		}
	}
	for _, n := range names {
		var st unix.Stat_t
		if strings.HasPrefix(n, ".t-") && unix.Fstatat(q, n, &st, unix.AT_SYMLINK_NOFOLLOW) == nil &&
			time.Since(time.Unix(st.Mtim.Unix())).Abs() > deadTemp {
			_ = unix.Unlinkat(q, n, 0)
		}
	}
	_ = unix.Unlinkat(p.dir, queueName, unix.AT_REMOVEDIR)
}

// waiters are the live ones, in order.
func (p *place) waiters() ([]lease.Waiter, error) {
	q, err := p.openQueue(false)
	if err != nil || q < 0 {
		return nil, err
	}
	defer unix.Close(q)
	names, err := tickets(q)
	if err != nil {
		return nil, sorted(p.path(queueName), err)
	}
	var ws []lease.Waiter
	for _, n := range names {
		live, err := p.live(q, n)
		if err != nil {
			return nil, err
		}
		if !live {
			continue
		}
		b, err := p.read(q, n, maxRead)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var t ticketText
		if json.Unmarshal(b, &t) != nil || t.ID == "" || len(t.ID) > maxID {
			t = ticketText{ID: "unreadable ticket " + n}
		}
		ws = append(ws, lease.Waiter{ID: t.ID, Info: bounded(t.Info)})
	}
	return ws, nil
}
