package cmd

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// serveMetrics answers at /metrics until the function returned is called. A wrong
// address is a mistake of whoever gave it; one that is taken may be free later.
func (a *app) serveMetrics(address string, m *metrics) (end func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return nil, usagef("--metrics-listen: %w", err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &coded{fmt.Errorf("--metrics-listen: %w", err), exitUnavailable}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = io.WriteString(w, m.served())
	})
	const limit = 5 * time.Second // for one scrape, so that nobody keeps connections for nothing
	server := &http.Server{Handler: mux, ReadTimeout: limit, WriteTimeout: limit, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // it ends with Close
	}()
	a.log.Info("metrics are served", "address", l.Addr().String())
	return func() {
		_ = server.Close()
		<-served
	}, nil
}
