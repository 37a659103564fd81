package zookeeper

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/simba-lock/simba/lease"
)

const (
	latchPrefix = "latch-"
	protected   = "_c_"
)

// latch is a node of a contender in the queue of a mutex.
type latch struct {
	name string
	guid string // empty if the node was made without protection
	seq  int32
}

// parseLatch recognises a latch node. What else stands there is not ours.
func parseLatch(name string) (latch, bool) {
	i := strings.LastIndex(name, latchPrefix)
	if i < 0 {
		return latch{}, false
	}
	// The server counts in 32 bits and goes on below zero.
	seq, err := strconv.ParseInt(name[i+len(latchPrefix):], 10, 32)
	if err != nil || len(name)-i-len(latchPrefix) < 10 {
		return latch{}, false
	}
	l := latch{name: name, seq: int32(seq)}
	if rest, ok := strings.CutPrefix(name[:i], protected); ok {
		l.guid = strings.TrimSuffix(rest, "-")
	}
	return l, true
}

// queue is the latch nodes of a mutex in order. The first one owns it.
type queue []latch

// newQueue sorts by sequence number, never by name: the names begin with a
// random part. Numbers are compared by their distance, so that a queue which
// spans the wrap-around keeps its order.
func newQueue(children []string) queue {
	var q queue
	for _, c := range children {
		if l, ok := parseLatch(c); ok {
			q = append(q, l)
		}
	}
	slices.SortFunc(q, func(a, b latch) int {
		switch d := a.seq - b.seq; {
		case d < 0:
			return -1
		case d > 0:
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	return q
}

func (q queue) index(name string) int {
	return slices.IndexFunc(q, func(l latch) bool { return l.name == name })
}

// newGUID is a random UUID, as Curator puts it into the names of its nodes.
func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// party is what a latch node says of its contender.
type party struct {
	id   string
	info lease.Info
	ours bool // not of the JVM library, which writes the id only
}

func encodeParty(c lease.Contender) []byte {
	info, err := json.Marshal(c.Info)
	if err != nil {
		info = []byte("{}") // a year beyond 9999 in Since
	}
	return append([]byte(c.ID+"\n"), info...)
}

// decodeParty never fails: garbage after the id is no info.
func decodeParty(data []byte) party {
	id, rest, ours := strings.Cut(string(data), "\n")
	p := party{id: id, ours: ours}
	if json.Unmarshal([]byte(rest), &p.info) != nil {
		p.info = lease.Info{}
	}
	return p
}
