package file

import (
	"context"
	"testing"
	"time"

	"github.com/simba-lock/simba/lease"
)

func TestSmoke(t *testing.T) {
	b := New(t.TempDir(), Options{})
	a, c := b.Session("m", lease.Contender{ID: "a"}), b.Session("m", lease.Contender{ID: "c"})
	r := lease.TryRequest{Queue: true}
	ans, err := a.Try(t.Context(), r)
	t.Logf("%+v %v", ans, err)
	ans, err = c.Try(t.Context(), r)
	t.Logf("%+v %v", ans, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	rang := make(chan lease.Ring, 10)
	done := make(chan error)
	go func() { done <- c.Listen(ctx, func(r lease.Ring) { rang <- r }) }()
	t.Log(<-rang)
	s, err := b.Inspect(ctx, "m")
	t.Logf("%+v %v", s, err)
	began := time.Now()
	t.Log(a.Release(ctx, lease.ReleaseRequest{}))
	t.Log(time.Since(began))
	t.Log(<-rang, time.Since(began))
	ans, err = c.Try(t.Context(), r)
	t.Logf("%v %+v %v", time.Since(began), ans, err)
	t.Log(c.Release(ctx, lease.ReleaseRequest{}))
	cancel()
	t.Log(<-done)
	s, err = b.Inspect(t.Context(), "m")
	t.Logf("%+v %v", s, err)
	t.Log(b.List(t.Context()))
}

func BenchmarkTryRelease(b *testing.B) {
	be := New(b.TempDir(), Options{})
	for b.Loop() {
		s := be.Session("m", lease.Contender{ID: lease.NewID(0)})
		a, err := s.Try(b.Context(), lease.TryRequest{})
		if err != nil || a.State != lease.Mine {
			b.Fatal(a, err)
		}
		s.Release(b.Context(), lease.ReleaseRequest{})
	}
}
