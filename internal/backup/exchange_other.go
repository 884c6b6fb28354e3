//go:build !linux

package backup

func exchange(a, b string) error { return exchangeByNames(a, b) }
