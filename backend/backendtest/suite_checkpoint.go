package backendtest

import (
	"errors"
	"strings"
	"time"

	"github.com/simba-lock/simba/lease"
)

// checkpoint: what an owner wrote is there for the next one, whether it released or
// died; only the owner may write, and only over what it knows.
func checkpoint(x *bench) {
	first := x.contender("first")
	first.refused("", "a")
	first.own()
	first.text("", "", "")
	first.text("", "a", "a")
	first.text("", "a", "a")      // the answer may have been lost
	first.text("other", "b", "a") // it is not what is there
	first.text("a", "a=1;b/2", "a=1;b/2")
	second := x.contender("second")
	second.is(second.try(true), lease.Held)
	second.refused("a=1;b/2", "c")
	// It is not mistaken for a mutex, nor is it another one's.
	other := x.contenderFor(x.mutex+"/other", "other")
	other.is(other.try(false), lease.Mine)
	other.text("", "", "")
	names, err := x.b.List(x.Context())
	if err != nil || len(names) != 2 {
		x.Errorf("list: %q, %v", names, err)
	}
	other.release()
	before := x.inspect()
	first.text("a=1;b/2", "d", "d")
	if after := x.inspect(); after.Owner != before.Owner || after.Fence != before.Fence || !after.Acquired.Equal(before.Acquired) {
		x.Errorf("a checkpoint changed %+v to %+v", before, after)
	}
	first.release()
	first.refused("d", "e")

	if _, err := second.get(x.Context(), second.hear()); err != nil {
		x.Fatal(err)
	}
	second.text("", "e", "d")
	long := strings.Repeat("0123456789abcde ", lease.MaxCheckpoint/16)
	second.text("d", long, long)
	// The owner dies. Nobody reads or writes in its stead before the lease has ended.
	if err := second.Close(); err != nil {
		x.Error(err)
	}
	third := x.contender("third")
	if _, err := third.get(x.Context(), third.hear()); err != nil {
		x.Fatal(err)
	}
	third.text("", "", long)
	third.text(long, "", "") // and it can be taken away
	third.release()
	fourth := x.contender("fourth")
	fourth.gets(time.Time{}, time.Now().Add(patience))
	fourth.text("x", "y", "")
	fourth.release()
}

// text replaces a checkpoint, which comes to want.
func (p *party) text(from, to, want string) {
	p.x.Helper()
	got, err := p.Checkpoint(p.x.Context(), from, to)
	if err != nil || got != want {
		p.x.Errorf("%s: checkpoint %.20q -> %.20q: %.20q, %v; want %.20q", p.info.Note, from, to, got, err, want)
	}
}

// refused: not the owner.
func (p *party) refused(from, to string) {
	p.x.Helper()
	if got, err := p.Checkpoint(p.x.Context(), from, to); !errors.Is(err, lease.ErrNotOwner) {
		p.x.Errorf("%s: checkpoint: %q, %v", p.info.Note, got, err)
	}
}
