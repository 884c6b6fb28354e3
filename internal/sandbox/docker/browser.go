package docker

import "strconv"

// Browser are the settings of a browser, which has a container next to that of the programs.
type Browser struct {
	Image string
	// CDPPort is where the browser takes commands, and VNCPort where its screen is shown, in the container.
	CDPPort, VNCPort int
	// Headless: it has no screen. AllowHostControl: programs may also use a browser of the host.
	Headless, AllowHostControl bool
}

// BrowserArgs are the arguments of `docker create` for the browser of a box. Its ports are published on the loopback
// address of the host alone. No driver starts this container yet.
func BrowserArgs(b Box, br Browser) []string {
	name := b.GetContainer() + "-browser"
	args := []string{
		"create", "--pull", "never", "--name", name, "--label", labelName + "=" + name,
		"--init", "--pids-limit", strconv.Itoa(maxPIDs), "--network", "bridge", "--security-opt", "no-new-privileges",
		"--publish", "127.0.0.1::" + strconv.Itoa(br.CDPPort), "--env", "OPENCLAW_BROWSER_CDP_PORT=" + strconv.Itoa(br.CDPPort),
	}
	if br.Headless {
		args = append(args, "--env", "OPENCLAW_BROWSER_HEADLESS=1")
	} else {
		args = append(args, "--publish", "127.0.0.1::"+strconv.Itoa(br.VNCPort), "--env", "OPENCLAW_BROWSER_VNC_PORT="+strconv.Itoa(br.VNCPort))
	}
	if br.AllowHostControl {
		args = append(args, "--env", "OPENCLAW_BROWSER_ALLOW_HOST_CONTROL=1")
	}
	return append(args, br.Image)
}
