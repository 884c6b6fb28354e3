{{- /*
The pod of a part of a cluster: "root" is the chart's, "part" is registry, runner,
deliverer or gateway, "args" are its arguments, "own" tells that its home is a volume of its own.
*/}}
{{- define "theclaw.part.pod" -}}
{{- $v := .root.Values -}}
{{- $sandbox := and $v.sandbox (eq .part "runner") -}}
{{- $public := and (eq .part "gateway") (include "theclaw.public" .root) -}}
{{- $image := printf "%s:%s" $v.image.repository ($v.image.tag | default .root.Chart.AppVersion) -}}
metadata:
  labels: {{- include "theclaw.part.labels" . | nindent 4 }}
  annotations:
    # A change of the settings is a new pod: they are read at the start.
    checksum/settings: {{ printf "%s%s%s%s" $v.cluster.settings $v.cluster.providers $v.gateway.publicURL $v.gateway.trustedProxies | sha256sum }}
    {{- with $v.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "theclaw.name" .root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- if $sandbox }}
  hostUsers: false
  {{- end }}
  terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile:
      type: {{ if $sandbox }}Unconfined{{ else }}RuntimeDefault{{ end }}
  # Two of a kind on one node would go with it.
  affinity:
    {{- if $v.affinity }}
    {{- toYaml $v.affinity | nindent 4 }}
    {{- else }}
    podAntiAffinity:
      {{- if eq $v.cluster.spread "required" }}
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "theclaw.part.selector" . | nindent 14 }}
      {{- else }}
      preferredDuringSchedulingIgnoredDuringExecution:
        - weight: 100
          podAffinityTerm:
            topologyKey: kubernetes.io/hostname
            labelSelector:
              matchLabels: {{- include "theclaw.part.selector" . | nindent 16 }}
      {{- end }}
    {{- end }}
  # A mounted Secret is a link to a file that the pod's group can read; agentd takes
  # a key only from a file that nobody else can.
  initContainers:
    - name: home
      image: {{ $image | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command:
        - /bin/sh
        - -ec
        - |
          umask 077
          cp /run/secret/ca.pem /run/secret/{{ .part }}.pem /run/theclaw/tls/
          mkdir -p /var/lib/theclaw/home
          cd /var/lib/theclaw/home
          rm -f theclaw.yaml providers.yaml
          for f in /run/settings/*.yaml; do [ ! -f "$f" ] || cp "$f" .; done
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities:
          drop: [ALL]
      volumeMounts:
        - name: secret
          mountPath: /run/secret
          readOnly: true
        - name: settings
          mountPath: /run/settings
          readOnly: true
        - name: tls
          mountPath: /run/theclaw/tls
        - name: home
          mountPath: /var/lib/theclaw
  containers:
    - name: agentd
      image: {{ $image | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args: {{- toYaml .args | nindent 8 }}
      ports:
        - name: mtls
          containerPort: {{ $v.listen.port }}
        {{- if $v.metrics.from }}
        - name: metrics
          containerPort: {{ $v.metrics.port }}
        {{- end }}
        {{- if $public }}
        - name: http
          containerPort: {{ $v.gateway.port }}
        {{- end }}
      env:
        - name: THECLAW_HOME
          value: /var/lib/theclaw/home
        - name: HOME
          value: /var/lib/theclaw
        {{- with $v.cluster.godebug }}
        - name: GODEBUG
          value: {{ . | quote }}
        {{- end }}
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        {{- if $public }}
        # The address and the port of gateway.http.
        - name: HOST
          value: $(POD_IP)
        - name: PORT
          value: {{ $v.gateway.port | quote }}
        {{- end }}
        {{- if eq .part "registry" }}
        {{- with first $v.cluster.database.secrets }}
        - name: THECLAW_DSN
          valueFrom:
            secretKeyRef:
              name: {{ required "cluster.database.secrets name a Secret" .name }}
              key: {{ required "cluster.database.secrets name a key" .key }}
        {{- end }}
        {{- end }}
      {{- if and $v.keysSecret (ne .part "registry") }}
      envFrom:
        - secretRef:
            name: {{ $v.keysSecret }}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        {{- if $sandbox }}
        procMount: Unmasked
        {{- end }}
        capabilities:
          drop: [ALL]
      startupProbe:
        exec:
          command: [/usr/local/bin/agentctl, ready, --service, {{ .part }}, --timeout, 4s]
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 60
      readinessProbe:
        exec:
          command: [/usr/local/bin/agentctl, ready, --service, {{ .part }}, --timeout, 4s]
        periodSeconds: 15
        timeoutSeconds: 5
      # Only what a restart can cure: a process that answers nothing at all. One that does
      # not serve, since its database is away, answers this.
      livenessProbe:
        exec:
          command: [/usr/local/bin/agentctl, log, level, --service, {{ .part }}, --timeout, 9s]
        periodSeconds: 30
        timeoutSeconds: 10
        failureThreshold: 4
      resources: {{- toYaml (dig .part "resources" $v.resources $v.cluster) | nindent 8 }}
      volumeMounts:
        - name: home
          mountPath: /var/lib/theclaw
        - name: tmp
          mountPath: /tmp
        - name: tls
          mountPath: /run/theclaw/tls
          readOnly: true
        {{- if and (eq .part "runner") $v.cluster.runner.workdirClaim }}
        - name: workdirs
          mountPath: /var/lib/workdirs
        {{- end }}
    {{- with $v.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir:
        sizeLimit: 256Mi
    - name: secret
      secret:
        secretName: {{ required "listen.secret names the Secret with ca.pem, registry.pem, runner.pem, deliverer.pem and gateway.pem" $v.listen.secret }}
        defaultMode: 0440
        items:
          - {key: ca.pem, path: ca.pem}
          - {key: {{ .part }}.pem, path: {{ .part }}.pem}
    - name: settings
      configMap:
        name: {{ include "theclaw.name" .root }}-{{ eq .part "gateway" | ternary "gateway" "settings" }}
    - name: tls
      emptyDir:
        medium: Memory
        sizeLimit: 1Mi
    {{- if not .own }}
    - name: home
      emptyDir:
        sizeLimit: {{ $v.storage.size }}
    {{- end }}
    {{- if and (eq .part "runner") $v.cluster.runner.workdirClaim }}
    - name: workdirs
      persistentVolumeClaim:
        claimName: {{ $v.cluster.runner.workdirClaim }}
    {{- end }}
    {{- with $v.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
