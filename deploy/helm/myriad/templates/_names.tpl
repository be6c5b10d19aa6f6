{{- define "myriad.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "myriad.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "myriad.labels" -}}
app.kubernetes.io/name: myriad
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The labels by which a part is selected: they never change over the life of a release. */}}
{{- define "myriad.selector" -}}
app.kubernetes.io/name: myriad
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{/* Where endpoints may be, who may call admin addresses, and what is held. */}}
{{- define "myriad.reach" -}}
{{- with .Values.endpoints.allow }}
- --endpoint-allow={{ join "," . }}
{{- end }}
{{- with .Values.endpoints.deny }}
- --endpoint-deny={{ join "," . }}
{{- end }}
{{- with .Values.adminHosts }}
- --admin-hosts={{ join "," . }}
{{- end }}
{{- include "myriad.hold" (dict "root" . "of" "") }}
{{- end -}}

{{/* When removals are held: by this process, or `sidecar-` by those that are injected. */}}
{{- define "myriad.hold" -}}
{{- $hold := .root.Values.hold -}}
{{- $of := .of -}}
{{- with $hold.percent | toString }}
- --{{ $of }}hold-percent={{ . }}
{{- end }}
{{- with $hold.domains | toString }}
- --{{ $of }}hold-domains={{ int64 . }}
{{- end }}
{{- with $hold.for | toString }}
- --{{ $of }}hold-for={{ int64 . }}
{{- end }}
{{- end -}}

{{- define "myriad.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "myriad.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "myriad.gatewayLabels" -}}
{{- $pairs := list -}}
{{- range $key, $value := .Values.istio.gatewayLabels -}}
{{- $pairs = append $pairs (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- join "," $pairs -}}
{{- end -}}

{{/* What is not empty where the controllers make the keys of tickets for some gateway. */}}
{{- define "myriad.makesTicketKeys" -}}
{{- $all := list .Values.proxy.ticketKeys -}}
{{- range .Values.gateways -}}
{{- $proxy := mergeOverwrite (deepCopy $.Values.proxy) (deepCopy (.proxy | default dict)) -}}
{{- $all = append $all $proxy.ticketKeys -}}
{{- end -}}
{{- range $all -}}
{{- if and .shared (not .secret) -}}yes{{- end -}}
{{- end -}}
{{- end -}}

{{/* What is not empty where the controllers obtain certificates. */}}
{{- define "myriad.obtains" -}}
{{- if or .Values.acme.enabled .Values.acme.email .Values.acme.directory .Values.acme.onDemand.ask -}}yes{{- end -}}
{{- end -}}

{{/* The settings of that. */}}
{{- define "myriad.acme" -}}
{{- if include "myriad.obtains" . -}}
- --acme
{{- with .Values.acme }}
{{- with .email }}
- --acme-email={{ . }}
{{- end }}
{{- with .directory }}
- --acme-directory={{ . }}
{{- end }}
{{- if .ca }}
- --acme-ca=/etc/myriad/acme-ca/ca.crt
{{- end }}
{{- with .challenge }}
- --acme-challenge={{ . }}
{{- end }}
{{- with .profile }}
- --acme-profile={{ . }}
{{- end }}
{{- with .key }}
- --acme-key={{ . }}
{{- end }}
{{- with .proof | toString }}
- --acme-proof={{ . }}
{{- end }}
{{- include "myriad.acmeDns" .dns }}
{{- with .binding.keyId }}
- --acme-eab-key-id={{ . }}
- --acme-eab-key-file=/etc/myriad/acme-binding/key
{{- end }}
{{- with .orders }}
- --acme-orders={{ int64 . }}
{{- end }}
{{- with .ordersPerDomain }}
- --acme-orders-per-domain={{ int64 . }}
{{- end }}
{{- with .onDemand.ask }}
- {{ printf "--acme-on-demand-ask=%s" . | quote }}
{{- end }}
{{- with .onDemand.max }}
- --acme-on-demand-max={{ int64 . }}
{{- end }}
{{- with .onDemand.perDomain }}
- --acme-on-demand-per-domain={{ int64 . }}
{{- end }}
{{- with .onDemand.asks }}
- --acme-on-demand-asks={{ int64 . }}
{{- end }}
{{- with .onDemand.idle }}
- --acme-on-demand-idle={{ int64 . }}
{{- end }}
{{- with .resolvers }}
- --resolver={{ join "," . }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* How records of DNS are set. */}}
{{- define "myriad.acmeDns" -}}
{{- if .server }}
- --acme-dns-server={{ .server }}
{{- with .zone }}
- --acme-dns-zone={{ . }}
{{- end }}
- --acme-dns-key-name={{ required "acme.dns.server needs acme.dns.tsig.name" .tsig.name }}
- --acme-dns-key-file=/etc/myriad/acme-dns/key
{{- with .tsig.algorithm }}
- --acme-dns-key-algorithm={{ . }}
{{- end }}
{{- end }}
{{- if .webhook.url }}
- --acme-dns-webhook={{ .webhook.url }}
{{- with .webhook.solver }}
- --acme-dns-webhook-solver={{ . }}
{{- end }}
{{- if .webhook.configMap }}
- --acme-dns-webhook-config=/etc/myriad/acme-webhook-config/config.json
{{- end }}
{{- if .webhook.secret }}
- --acme-dns-webhook-token-file=/etc/myriad/acme-webhook/token
{{- end }}
{{- end }}
{{- with .proof | toString }}
- --acme-dns-proof={{ . }}
{{- end }}
{{- end -}}

{{/* The volumes of what the controllers obtain certificates with, as NAME: the ConfigMap or the Secret, and its key. */}}
{{- define "myriad.acmeVolumes" -}}
{{- if include "myriad.obtains" . }}
{{- with .Values.acme }}
{{- with .ca }}
- {name: acme-ca, configMap: {name: {{ . }}}}
{{- end }}
{{- if .binding.keyId }}
{{- $secret := required "acme.binding.keyId needs acme.binding.secret" .binding.secret }}
- {name: acme-binding, secret: {secretName: {{ $secret }}, defaultMode: 0440, items: [{key: key, path: key}]}}
{{- end }}
{{- if .dns.server }}
{{- $secret := required "acme.dns.server needs acme.dns.tsig.secret" .dns.tsig.secret }}
- {name: acme-dns, secret: {secretName: {{ $secret }}, defaultMode: 0440, items: [{key: key, path: key}]}}
{{- end }}
{{- if .dns.webhook.url }}
{{- with .dns.webhook.configMap }}
- {name: acme-webhook-config, configMap: {name: {{ . }}, items: [{key: config.json, path: config.json}]}}
{{- end }}
{{- with .dns.webhook.secret }}
- {name: acme-webhook, secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: token, path: token}]}}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The pod of a proxy: of the release `root`, under the service account `account`, of the gateway `view`. What `proxy` sets
is as in the values of that name. One without a view is of a Gateway that nobody knows yet: the roots are in `roots`. */}}
{{- define "myriad.proxyPod" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $proxy := .proxy -}}
{{- $view := .view -}}
{{- $name := include "myriad.name" .root -}}
{{ with .account -}}
serviceAccountName: {{ . }}
{{ end -}}
automountServiceAccountToken: false
terminationGracePeriodSeconds: {{ add $proxy.drainDelay $proxy.drainTimeout 5 }}
securityContext: {{- include "myriad.podSecurity" $root | nindent 2 }}
{{- with $values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
- name: proxy
  image: {{ include "myriad.image" $root }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args:
  - proxy
  - --controller={{ $name }}-controller.{{ $root.Release.Namespace }}.svc:15010
  - --token-file=/var/run/secrets/myriad/token
  - --ca-file=/etc/myriad/ca/ca.crt
  - --state-dir=/var/lib/myriad
  - --admin=0.0.0.0:9901
  - --log={{ $proxy.log }}
  - --drain-delay={{ $proxy.drainDelay }}
  - --drain-timeout={{ $proxy.drainTimeout }}
  - --trusted-hops={{ $proxy.trustedHops }}
  {{- with $proxy.proxyProtocol.ports }}
  - --proxy-protocol={{ join "," . }}
  {{- end }}
  {{- with $proxy.proxyProtocol.from }}
  - --proxy-protocol-from={{ join "," . }}
  {{- end }}
  {{- if $proxy.ticketKeys.shared }}
  - --ticket-keys=/etc/myriad/tickets/ticket.keys
  {{- end }}
  {{- /* The Secret is of the release's namespace, which others do not see. */}}
  {{- $console := ternary "" $values.console.tokenSecret (hasKey . "roots") }}
  {{- if $console }}
  - --console-token-file=/etc/myriad/console/token
  {{- end }}
  - --locality=$(NODE_REGION)/$(NODE_ZONE)
  {{- if $values.mesh.enabled }}
  - --mesh
  {{- end }}
  {{- with $proxy.workers }}
  - --workers={{ . }}
  {{- end }}
  {{- with include "myriad.reach" $root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $proxy.pathNormalization }}
  - --path-normalization={{ . }}
  {{- end }}
  {{- range $name, $value := $proxy.limits }}
  - --limit={{ $name }}={{ kindIs "float64" $value | ternary ($value | int64) $value }}
  {{- end }}
  {{- if $proxy.standardMetrics }}
  {{- if $view }}
  - --workload={{ $root.Release.Namespace }}/{{ .account }}
  {{- else }}
  - --workload=$(POD_NAMESPACE)/$(POD_ACCOUNT)
  {{- end }}
  {{- end }}
  {{- if $proxy.accessLog }}
  - --access-log
  {{- end }}
  {{- with $proxy.requestId }}
  - --request-id={{ . }}
  {{- end }}
  env:
  # Of the node, where Kubernetes copies its topology onto Pods (1.35 and later); empty elsewhere.
  - name: NODE_REGION
    valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/region']"}}
  - name: NODE_ZONE
    valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
  {{- if not $view }}
  - name: POD_NAMESPACE
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: POD_ACCOUNT
    valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}
  {{- end }}
  ports:
  - {name: http, containerPort: 8080}
  - {name: https, containerPort: 8443}
  - {name: admin, containerPort: 9901}
  livenessProbe:
    httpGet: {path: /healthz, port: admin}
    timeoutSeconds: 5
  readinessProbe:
    httpGet: {path: /readyz, port: admin}
    periodSeconds: 2
    timeoutSeconds: 2
  resources: {{- toYaml $proxy.resources | nindent 4 }}
  securityContext: {{- include "myriad.containerSecurity" $root | nindent 4 }}
  volumeMounts:
  - {name: state, mountPath: /var/lib/myriad}
  - {name: token, mountPath: /var/run/secrets/myriad, readOnly: true}
  - {name: ca, mountPath: /etc/myriad/ca, readOnly: true}
  {{- if $console }}
  - {name: console, mountPath: /etc/myriad/console, readOnly: true}
  {{- end }}
  {{- if $proxy.ticketKeys.shared }}
  - {name: tickets, mountPath: /etc/myriad/tickets, readOnly: true}
  {{- end }}
volumes:
- name: state
  emptyDir: {sizeLimit: {{ $proxy.stateSizeLimit }}}
- name: token
  projected:
    sources:
    - serviceAccountToken: {audience: myriad, expirationSeconds: 3600, path: token}
- name: ca
  configMap: {name: {{ .roots | default "myriad-ca" }}}
{{- with $console }}
- {name: console, secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: token, path: token}]}}
{{- end }}
{{- with $proxy.ticketKeys }}
{{- if .shared }}
# Nobody waits for it: until it is there, each proxy makes keys of its own.
- name: tickets
  secret:
    secretName: {{ .secret | default "myriad-tickets" }}
    optional: true
    defaultMode: 0440
    items: [{key: {{ if .secret }}ticket.keys{{ else }}{{ $view }}{{ end }}, path: ticket.keys}]
{{- end }}
{{- end }}
{{- with $proxy.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $proxy.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $proxy.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The file of `--gateways`. */}}
{{- define "myriad.gateways" -}}
{{- range .Values.gateways }}
- name: {{ .name }}
  namespace: {{ .namespace | default $.Values.istio.gatewayNamespace | default $.Release.Namespace }}
  labels: {{ toJson .labels }}
  ingress: {{ .ingress | default false }}
  serviceAccounts: [{{ $.Release.Namespace }}/{{ include "myriad.name" $ }}-gateway-{{ .name }}]
{{- end }}
{{- end -}}


{{/* The ConfigMap with the roots that the proxies of single Gateways know controllers by, in the namespace of each. */}}
{{- define "myriad.gatewayRoots" -}}
{{ include "myriad.name" . }}-gateway-ca
{{- end -}}

{{/* The file of `--gateway-deployments`: how the proxies of single Gateways are deployed. */}}
{{- define "myriad.gatewayTemplate" -}}
{{- $proxy := mergeOverwrite (deepCopy .Values.proxy) (deepCopy .Values.gatewayApi.deployments.proxy) -}}
{{- /* The keys of tickets are in a Secret of the release, which other namespaces do not see. */ -}}
{{- $_ := set $proxy "ticketKeys" (dict "shared" false "secret" "") -}}
{{- $roots := include "myriad.gatewayRoots" . -}}
roots: {{ $roots }}
labels:
  app.kubernetes.io/name: myriad
  app.kubernetes.io/instance: {{ .Release.Name }}
  app.kubernetes.io/component: gateway-proxy
replicas: {{ $proxy.replicas }}
service:
  type: {{ $proxy.service.type }}
  annotations: {{ toJson $proxy.service.annotations }}
  externalTrafficPolicy: {{ $proxy.service.externalTrafficPolicy }}
metadata:
  allow: {{ toJson .Values.gatewayApi.deployments.metadata.allow }}
addresses: {{ toJson .Values.gatewayApi.deployments.addresses }}
{{- if .Values.networkPolicy.enabled }}
networkPolicy:
  adminFrom: {{ toJson (.Values.networkPolicy.adminFrom | default list) }}
{{- end }}
pod:
  {{- include "myriad.proxyPod" (dict "root" . "account" "" "view" "" "proxy" $proxy "roots" $roots) | nindent 2 }}
{{- end -}}
