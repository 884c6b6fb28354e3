//go:build !linux

package main

func play() {}
