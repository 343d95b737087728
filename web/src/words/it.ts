/** Le stesse parole in italiano. */

import type { Words } from "./en";

const many = (count: number, one: string, more: string) => (count === 1 ? one : more);

export const it: Words = {
  title: "Segnala un luogo, il tuo resta tuo",
  description: "Segnala un luogo estratto a sorte, con un limite dimostrato a ciò che rivela.",
  skip: "Scegli un luogo senza la mappa",
  language: "Lingua",
  deployment: "Indagine",
  offline: "Senza rete",
  map: "Mappa",
  mapPlaces: "Mappa dei luoghi",
  mapHelp: "Le frecce muovono un cursore, con maiuscolo più in fretta. Invio sceglie il luogo sotto il cursore. Più e "
    + "meno ingrandiscono e rimpiccioliscono, zero mostra tutto. I luoghi si possono anche cercare per nome o "
    + "prendere da un elenco, nella sezione Il tuo luogo.",
  zoomIn: "Ingrandisci",
  zoomOut: "Rimpicciolisci",
  zoomAll: "Mostra tutto",
  legendMine: "il tuo luogo, resta qui",
  legendMay: "può essere segnalato",
  legendArea: "(area: probabilità)",
  legendDrawn: "è stato inviato",
  hint: "Tocca il tuo luogo sulla mappa",
  loading: "Carico la mappa",
  loadingTable: "Carico la tabella",
  loadingFailed: "La mappa non può essere mostrata",
  tryAgain: "Riprova",

  intro: "Il tuo luogo non lascia mai questa pagina. Ciò che viene inviato è un luogo estratto a sorte: può essere "
    + "vicino al tuo o più lontano, e può essere proprio il tuo. Per il luogo che scegli la pagina dice quanto spesso.",
  whoTitle: "Chi lo chiede, e perché",
  collects: "Raccolto da",
  purpose: "A che scopo",
  until: "Fino al",
  notSaid: "il gestore non lo dice",
  noEnd: "non è promessa una fine",
  erased: "Segnalazioni cancellate",
  erasedAfter: (count: number) => `dopo ${count} ${many(count, "giorno", "giorni")}`,
  untilOver: "l'ultimo giorno è passato",
  whoSigned: "Firmato dal gestore insieme all'indagine; nessuno può cambiarlo di nascosto.",
  checked: "Che cosa è stato controllato, esattamente",
  auditAll: "Controlla tutte le coppie",

  placeTitle: "Il tuo luogo",
  placePick: "Toccalo sulla mappa. Con la tastiera: vai alla mappa, muovi il cursore con le frecce, premi Invio.",
  search: "Cerca per nome",
  searchHint: "Via o punto noto",
  searchResults: "Luoghi con quel nome",
  searchCount: (count: number) => count === 0 ? "Nessuna via e nessun punto noto ha questo nome."
    : `${count} ${many(count, "luogo", "luoghi")}; la ricerca avviene in questa pagina e non viene inviata a nessuno.`,
  noNames: "Questa mappa non ha nomi da cercare.",
  here: "Usa la mia posizione",
  hereNote: "Il browser trova la tua posizione e può chiederla a un servizio del suo produttore, che allora la "
    + "conosce. Il server dell'indagine non la viene a sapere.",
  hereWait: "Aspetto la tua posizione…",
  hereFailed: "Il browser non ha detto la tua posizione. Toccala sulla mappa.",
  hereOff: (metres: string) => `La tua posizione, con uno scarto di ${metres} secondo il browser.`,
  byList: "Scegli invece da un elenco",
  listArea: "Parte della mappa",
  listPlace: "Luogo",
  listPick: "Prendi questo luogo",
  numbers: "Latitudine, longitudine",
  numbersTake: "Prendi",
  numbersWrong: "Due numeri in gradi, per esempio 41.9022, 12.4539.",
  near: (name: string) => `vicino a ${name}`,
  placeSaid: (km: string) => `. Il luogo più vicino che la tabella conosce è a ${km}.`,
  placePoint: ". Si estrae proprio lì, senza spostarlo su un luogo noto: questa tabella copre ogni punto della sua area.",
  placeBall: ". Il punto si estrae per questo luogo così com'è, arrotondato a pochi metri: non serve una mappa dei luoghi noti.",
  snapBall: (factor: string, km: string) => `Il rapporto viene dalla riga di un luogo noto a non più di ${km}, o da una `
    + `riga comune a tutti: per questo le quote tra due luoghi possono cambiare di un ulteriore fattore ${factor} al massimo.`,
  snapSaid: (factor: string, km: string, limit: string) => "Sta al posto del tuo, e il passo conta come una distanza: "
    + `le quote tra il tuo luogo e un altro possono cambiare di un ulteriore fattore ${factor} per i tuoi ${km}, e `
    + `di altrettanto per il passo dell'altro, fino a ${limit}. Fuori dall'area vale il suo punto più vicino a te.`,
  hear: (km: string, wind: string, near: string) =>
    `${km} a ${wind} del centro; il luogo noto più vicino è a ${near}`,
  listed: (km: string, wind: string) => `${km} a ${wind} del centro`,
  listedArea: (wind: string, km: string, count: string) => `${wind}, a ${km} dal centro, ${count} luoghi`,
  placeTaken: (km: string) => `Luogo preso. Le segnalazioni sarebbero in media a ${km}.`,

  steps: { place: "Dove sei?", told: "Che cosa direbbe?", send: "Inviare?", done: "È stato segnalato" },
  stepOf: (step: number, all: number) => `Passo ${step} di ${all}`,
  back: "Indietro",
  next: "Avanti",
  spreadTitle: "Che cosa verrebbe segnalato",
  spreadDone: "Che cosa è stato segnalato",
  spreadFrom: "È stato estratto dalla riga del tuo luogo. Le segnalazioni da lì:",
  spreadItself: "delle segnalazioni indica proprio il tuo luogo",
  spreadHalf: "al massimo dal tuo luogo, in metà delle segnalazioni",
  spreadMost: "al massimo, in 9 su 10",
  spreadSaid: (mean: string, top: string) => `In media le segnalazioni sono a ${mean} dal tuo luogo. La più `
    + `probabile ha ${top}.`,
  spreadRecord: (km: string) => ` Il tuo luogo vuol dire qui il luogo noto che ne fa le veci, a ${km}.`,
  spreadNever: "Proprio il tuo luogo non viene mai segnalato: non è tra quelli che una segnalazione può indicare.",
  spreadLater: "Che cosa verrebbe segnalato si sa dopo la prima di due estrazioni: solo allora arrivano qui le righe da "
    + "cui si estrae. Questa pagina le controlla prima di estrarre.",
  howTable: "Una estrazione, in questa pagina, dalla riga del tuo luogo; ciò che esce viene inviato.",
  howEverywhere: "Due estrazioni, entrambe in questa pagina: prima un vertice del piccolo triangolo in cui sta il tuo luogo, il più "
    + "vicino è il più probabile, poi una segnalazione dalla sua riga, che viene inviata. Ogni segnalazione si estrae e "
    + "si paga di nuovo: una risposta conservata direbbe dove sei nel triangolo.",
  howPanda: "Due estrazioni, entrambe in questa pagina: prima una zona o un sostituto del tuo luogo, poi una "
    + "segnalazione dalla sua riga. Si invia solo la segnalazione.",
  howBall: "Due estrazioni. Prima un punto vicino al tuo luogo viene estratto e inviato; tornano le righe dei luoghi "
    + "intorno. Poi da quelle si estrae e si invia una segnalazione. Epsilon e delta contano entrambe insieme.",
  howAnchors: "Due estrazioni. Prima un insieme di luoghi, le ancore, viene estratto e inviato; quando il turno si "
    + "chiude, il server fa le righe per le ancore di tutti. Poi dalle tue si estrae e si invia una segnalazione. "
    + "Epsilon e delta contano entrambe insieme.",
  chartMean: "media",
  chartHere: "il tuo luogo",
  chartSaid: (half: string, most: string, top: string) => `Distanze delle segnalazioni: metà entro ${half}, nove su `
    + `dieci entro ${most}; la più probabile ha ${top}`,

  meaningTitle: "Che cosa si potrebbe scoprire",
  meaningLead: "Poniamo che qualcuno sappia che eri in uno di due luoghi, li ritenga ugualmente probabili e veda la "
    + "tua segnalazione. Quanto spesso indovina? Senza segnalazione 50 volte su 100.",
  meaningHere: "quanto permette questa tabella, dal tuo luogo",
  meaningMost: "quanto è promesso a tutti",
  apart: (km: string) => `a ${km} l'uno dall'altro`,
  atMost: (guess: string) => `al massimo ${guess}`,
  oddsChange: (factor: string) => `Le quote cambiano al massimo di un fattore ${factor}.`,
  fromHere: (count: string, km: string, guess: string) =>
    ` Dal tuo luogo, con ${count === "1" ? "un luogo" : `i ${count} luoghi`} entro ${km}: ${guess}.`,
  compared: (count: string, own: string, promised: string) => `Il tuo luogo è stato confrontato con tutti gli altri `
    + `${count}: epsilon al massimo ${own} per km, ${promised} è promesso.`,
  comparedPoint: (own: string, promised: string) => `Ogni punto dell'area è stato confrontato con ogni altro: epsilon `
    + `${own} per km al massimo, è promesso ${promised}.`,
  comparedPanda: (count: string, violation: string, delta: string) => `Il tuo luogo è stato confrontato con tutti gli `
    + `altri ${count}: ciò che riveli dice di più con probabilità ${violation} al massimo; è promesso ${delta}.`,
  comparedBall: (promised: string) => `La prima estrazione rivela epsilon ${promised} per km al massimo, ovunque tu sia. `
    + "La seconda si controlla quando arrivano le sue righe.",
  saveDelta: (delta: string) => ` Di più si rivela con probabilità ${delta} al massimo.`,
  protectsLittle: " Un epsilon così protegge poco a 500 m.",
  comparing: "Confronto il tuo luogo con tutti gli altri…",
  epsilonWhat: "Che cos'è epsilon? Che cosa sono le quote?",
  oddsExplained: "Le quote confrontano due possibilità: 3 a 1 vuol dire che una è ritenuta tre volte più probabile "
    + "dell'altra. Una segnalazione cambia le quote tra due luoghi di un fattore, e il fattore ha un tetto.",
  epsilonExplained: "Epsilon fissa quel tetto: è e elevato a epsilon per la distanza in km tra i due luoghi. Un "
    + "epsilon piccolo protegge di più e rende le segnalazioni meno esatte; i luoghi vicini sono i più protetti.",

  deltaExplained: "Delta, dove un'indagine ne ha uno, è quanto spesso il tetto può cedere: con quella probabilità ciò "
    + "che si invia può dire di più, anche tutto. I delta di più segnalazioni si sommano.",

  booksTitle: "Che cosa hai rivelato finora",
  keepsAnswer: "Un luogo tiene la sua risposta per tutto il periodo: chi potesse scegliere tra più estrazioni, o "
    + "farne la media, rivelerebbe il luogo.",
  limits: "Limiti e memoria",
  limitLabel: (period: string) => `Epsilon massimo per ${period}, per km`,
  limitDelta: (period: string) => `Delta massimo per ${period}`,
  spentDelta: (spent: string, limit: string) => `Delta ${spent} di ${limit}.`,
  limitKeep: "Tieni",
  forget: "Dimentica ciò che è stato estratto",
  forgetNote: "Dimenticare cancella da questo browser per quali luoghi si è estratto e ciò che aspetta di essere inviato. "
    + "Ciò che è speso resta speso, e lo stesso luogo sarebbe estratto e pagato di nuovo.",
  forgotten: "Ciò che è stato estratto è dimenticato; ciò che è speso resta speso.",
  spent: (spent: string, limit: string, period: string) =>
    `Per questo periodo (${period}) è speso epsilon ${spent} di ${limit} per km.`,
  spentLost: (period: string, ends: string) => "I registri di questo browser sono andati persi, perciò non si sa che "
    + `cosa è stato speso. Il prossimo periodo (${period}) comincia tra ${ends}.`,
  spentFree: "Per questo luogo si è già estratto, perciò non costa altro.",
  spentCost: (cost: string) => `Un luogo nuovo costa ${cost}.`,
  spentRest: (period: string, ends: string) => "I costi dei luoghi si sommano: chi vede tutte le tue segnalazioni di un "
    + `periodo (${period}) scopre al massimo tanto per km. Il prossimo comincia tra ${ends}.`,
  advice: (count: number, period: string, epsilon: string) => `Il gestore propone ${count} `
    + `${many(count, "segnalazione", "segnalazioni")} per ${period}: epsilon ${epsilon}. Il limite è tuo, e questa `
    + "pagina lo rispetta.",

  token: "Il tuo gettone o invito, avuto dal gestore",
  tokenKeep: "tienilo finché questa scheda è aperta",
  tokenWhat: "Che cos'è un gettone?",
  tokenExplained: "Una lunga parola che il gestore ti ha dato, o che era nel tuo link. Mostra che puoi partecipare e "
    + "permette al server di contare quante volte. Tutte le segnalazioni con un gettone sono note come di una sola "
    + "persona; del tuo luogo non dice nulla.",
  tokenWrong: "Un gettone comincia con pmt_, un invito con pmi_; li distribuisce il gestore.",
  enrolled: "Il tuo invito è stato scambiato con un gettone, che resta in questo browser: un invito vale una volta.",
  notEnrolled: (why: string) => `L'invito non è stato accettato: ${why}.`,
  tokenRefused: (why: string) => `Il gettone non è stato accettato: ${why}.`,
  send: "Estrai un luogo e invialo",
  sendNote: "Un solo passo: un luogo viene estratto e inviato, e lo vedi quando è stato inviato. Scegliere se inviarlo "
    + "dopo averlo visto rivelerebbe qualcosa che nessun epsilon copre.",
  sendFree: "Questo luogo ha già la sua risposta; inviarla di nuovo non rivela altro.",
  sending: "Estraggo e invio…",
  collect: "Raccogli gettoni monouso",
  collectFirst: "Le segnalazioni di questa indagine non nominano nessuno: portano gettoni che valgono una volta, che questa "
    + "pagina raccoglie con il tuo. Il server vede chi raccoglie e, più tardi, una segnalazione che è di nessuno.",
  collecting: "Raccolgo gettoni monouso…",
  collected: (count: number) => `${count === 1 ? "Un gettone monouso è qui" : `${count} gettoni monouso sono qui`} per `
    + "questo periodo. Lascia passare del tempo prima di segnalare, o segnala da un'altra rete: indirizzo e ora li unirebbero.",
  goOn: "Continua questa segnalazione",
  unfinished: "La prima estrazione per questo luogo è fatta, pagata e inviata; nulla si estrae o si paga di nuovo. "
    + "Continua con la seconda.",
  waitsForRound: (round: number) => `Le tue ancore sono nel turno ${round}, non ancora risolto. Questa pagina chiede `
    + "di nuovo da sola; si può anche chiudere e scegliere lo stesso luogo più tardi nel periodo.",
  sent: (km: string, near: string) => `Inviato: un luogo a ${km} dal tuo${near}. Grazie.`,
  sentItself: "Inviato: proprio il luogo che fa le veci del tuo. Succede tanto spesso quanto la pagina ha detto. Grazie.",
  sentBefore: "Questo luogo è già stato segnalato in questo periodo. Ciò che è stato inviato qui è cancellato, e non "
    + "serve altro.",
  refused: (why: string) => `Il server ha rifiutato la segnalazione: ${why}.`,
  closed: "Questa indagine è chiusa e non accetta segnalazioni.",
  checkFailed: "Non si può estrarre nulla: per questa tabella il controllo della riservatezza è fallito.",
  replacedSay: "La tabella è stata sostituita. Di' qui sopra se usare quella nuova.",
  nothingMore: (why: string) => `Non si può estrarre altro: ${why}.`,
  waiting: (count: number) => count === 1
    ? "Una segnalazione è estratta e aspetta la rete; parte da sola. La pagina può restare aperta o essere riaperta più tardi."
    : `${count} segnalazioni sono estratte e aspettano la rete; partono da sole. La pagina può restare aperta o essere riaperta più tardi.`,
  waitingToken: (count: number) =>
    `${many(count, "Una segnalazione aspetta", `${count} segnalazioni aspettano`)} un gettone.`,

  signed: (key: string, first: boolean) =>
    `Firmato dal gestore, con la chiave ${key}, ${first ? "vista qui per la prima volta" : "quella che conosci"}`,
  waitSignature: "Aspetto la firma del gestore…",
  waitTable: "Aspetto la tabella…",
  waitOffline: "Mi preparo a lavorare senza rete…",
  needsNet: "Serve la rete: questo browser non conserva nulla",
  worksOffline: "D'ora in poi funziona senza rete; le segnalazioni allora aspettano",
  auditing: "Controllo la riservatezza in questa pagina…",
  auditingShare: (percent: number) => `Controllo la riservatezza in questa pagina: ${percent} %`,
  auditingAll: "Controllo tutte le coppie…",
  auditFailed: (why: string) => `Il controllo della riservatezza è fallito: ${why}`,
  auditBad: (found: string, claimed: string) => `La tabella non è riservata come dice: epsilon ${found} invece di `
    + `${claimed} per km. Con essa non si può segnalare nulla.`,
  auditGood: (pairs: string) => `Riservatezza controllata in questa pagina: tutte le ${pairs} coppie`,
  auditEverywhere: (triangles: string) => `Riservatezza controllata in questa pagina: ogni punto di tutti i ${triangles} triangoli`,
  auditEverywhereSaid: (triangles: string, pairs: string, seconds: string, found: string, claimed: string) =>
    `Questa pagina ha controllato che ${triangles} triangoli coprano l'area, e confrontato ogni punto di ciascuno, e tutte le `
    + `${pairs} coppie di vertici, in ${seconds} s, sugli interi da cui si estrae. L'epsilon più grande è ${found} per km; è `
    + `promesso ${claimed}, tra due punti qualsiasi.`,
  auditPanda: (pairs: string, violation: string, delta: string) =>
    `Riservatezza controllata in questa pagina: entrambe le fasi, tutte le ${pairs} coppie, probabilità di più ${violation}; è promesso ${delta}`,
  auditPandaPart: (km: string, covered: string) =>
    `Riservatezza controllata in questa pagina: righe di tutte le coppie entro ${km}, entrambe le fasi per ${covered} coppie; la tua prima di ogni estrazione`,
  auditBall: () => "La riservatezza della prima estrazione vale per dimostrazione in ogni luogo; le righe della seconda si controllano quando arrivano",
  auditPandaSaid: (pairs: string, seconds: string, epsilon: string, first: string, violation: string, delta: string) =>
    `Questa pagina ha calcolato, in ${seconds} s, per tutte le ${pairs} coppie di luoghi quanto spesso le due fasi insieme `
    + `dicono più di epsilon ${epsilon} per km: con probabilità ${violation} al massimo; è promesso ${delta}. La prima fase `
    + `da sola rivela epsilon ${first} per km al massimo. Tutto sugli interi da cui si estrae.`,
  auditPandaPartSaid: (pairs: string, all: string, seconds: string, violation: string, delta: string) =>
    `In ${seconds} s questa pagina ha calcolato per ${pairs} di ${all} coppie di luoghi quanto spesso le due fasi insieme `
    + `dicono più di quanto promesso: con probabilità ${violation} al massimo; è promesso ${delta}. Le altre non sono state `
    + "guardate. Il tuo luogo si confronta con ogni altro prima di ogni estrazione.",
  auditBallSaid: (claimed: string) =>
    `La prima estrazione rivela epsilon ${claimed} per km al massimo in ogni luogo, per una legge in forma chiusa: non c'è `
    + "una tabella da confrontare. Per le righe della tua zona si prova che sono quelle firmate dal gestore e si "
    + "confrontano tutte le coppie quando arrivano; altrimenti non se ne estrae nulla.",
  auditPart: (km: string, count: string) =>
    `Riservatezza controllata in questa pagina: tutte le coppie entro ${km}, altre ${count} a caso`,
  auditComplete: (pairs: string, seconds: string, found: string, claimed: string) =>
    `Questa pagina ha confrontato tutte le ${pairs} coppie di luoghi su tutte le uscite, in ${seconds} s, sugli interi `
    + `da cui si estrae. L'epsilon più grande è ${found} per km; ${claimed} è promesso.`,
  auditSampled: (km: string, covered: string, pairs: string, sampled: string, found: string, claimed: string) =>
    `Questa pagina ha confrontato tutte le coppie di luoghi più vicine di ${km} (${covered} di ${pairs} coppie, o le ha `
    + `dimostrate con un limite) e ${sampled} estratte a caso tra tutte. L'epsilon più grande è ${found} per km; `
    + `${claimed} è promesso. Le coppie più lontane non sono state confrontate tutte. Il tuo luogo viene confrontato `
    + "con ogni altro prima di estrarre.",
  logGood: (size: string) => `tabella e indagine sono tra le sue ${size} voci, ed esso continua quello visto qui in precedenza; la testa`,
  factLog: "Registro pubblico",
  factTable: "Tabella",
  factRecords: "Luoghi",
  factPromised: "Promesso",
  factMethod: "Metodo",
  factPhases: "Come",
  factDelta: (epsilon: string, delta: string) => `epsilon ${epsilon} per km, salvo con probabilità delta ${delta}`,
  factLoss: "Perdita media",
  factRounding: "Arrotondamento",
  factIdentity: "Identità",
  factKey: "Chiave",
  factMade: "Fatta il",
  factVersion: (name: string, version: number, size: string) => `${name}, versione ${version}, ${size}`,
  factCounts: (records: string, outputs: string) => `${records} luoghi, ${outputs} uscite`,
  factEpsilon: (epsilon: string) => `epsilon ${epsilon} per km`,
  factLossSaid: (loss: string) => `${loss} come la conta il gestore`,
  factGap: (gap: string) => `, al massimo ${gap} sopra la migliore possibile`,
  factCost: (cost: string) => `ne costa ${cost}`,
  replacedTitle: "La tabella è stata sostituita dalla tua ultima visita",
  replacedSaid: (version: number, epsilon: string) => `Ora vale la versione ${version}, con epsilon ${epsilon} per km. `
    + "Ha la firma del gestore, e questa pagina ne controlla la riservatezza come per la prima.",
  replacedUse: "Usa la tabella nuova",
  tableRefused: "Questa tabella è rifiutata",
  keyChanged: "La chiave del gestore è cambiata",
  keyKnown: "Nota: ",
  keyName: "Nome della nuova chiave",
  keyAsk: "Nome della nuova chiave, come te l'ha detto il gestore ",
  keyAccept: "Accetta",
  keyWrong: "Non è il nome della chiave che questo server mostra.",
  noConnection: "Nessuna connessione",
  stops: "Questa pagina si ferma qui",

  winds: ["nord", "nord-est", "est", "sud-est", "sud", "sud-ovest", "ovest", "nord-ovest"],
  centre: "centro",
  below: "meno di 0,1 %",
  million: "più di un milione",
  nearlyAlways: "quasi sempre",
  inHundred: (count: string) => `${count} volte su 100`,
  seconds: (count: number) => `${count} ${many(count, "secondo", "secondi")}`,
  minutes: (count: number) => `${count} ${many(count, "minuto", "minuti")}`,
  hours: (count: number) => `${count} ${many(count, "ora", "ore")}`,
  days: (count: number) => `${count} ${many(count, "giorno", "giorni")}`,
  day: "giorno",
  week: "settimana",
  hour: "ora",
  periodOf: (span: string) => `periodo di ${span}`,

  problems: {
    unknown: () => ["qualcosa è andato storto, non si sa che cosa", ""],
    server: (message, remedy) => [String(message), String(remedy)],
    offline: () => ["il server non è raggiungibile", "Riprova più tardi."],
    unencrypted: () => [
      "questa pagina è stata caricata senza cifratura, e i browser allora bloccano gli strumenti di cui ha bisogno",
      "Aprila con https.",
    ],
    noneUsable: () => [
      "questo server ha indagini, ma nessuna su luoghi di una mappa con una garanzia dimostrata, le sole a cui questa "
        + "pagina partecipa",
      "Usa per le altre il client della libreria panda-mdp.",
    ],
    noDeployment: () => ["questo server non ha ancora indagini", "Torna più tardi."],
    notAnnounced: () => ["la tabella arrivata non è quella annunciata", "Ricarica la pagina."],
    tooLong: () => ["la tabella è più lunga di quanto annunciato", "Ricarica la pagina."],
    keyName: () => ["la chiave del server non ha il nome che porta", "Avvisa il gestore."],
    keyChanged: (before, now) => [
      `la chiave del gestore era ${before} e ora è ${now}`,
      "Non si può segnalare nulla finché non hai chiesto al gestore, per una via diversa da questa pagina, se la chiave "
        + "è stata davvero sostituita.",
    ],
    limit: (value) => [`un limite è ${value}; deve essere positivo e finito`, "Danne un altro."],
    booksLost: () => [
      "i registri di questo browser sono andati persi, perciò non si sa che cosa è stato speso",
      "Aspetta il prossimo periodo.",
    ],
    otherUnit: (unit) => [`costa epsilon per ${unit}, e i limiti sono per km`, ""],
    reportCost: (cost, limit) => [
      `una segnalazione costa epsilon ${cost} ed è permesso ${limit}`,
      "Permetti di più nei limiti, o non partecipare.",
    ],
    periodSpent: (spent, limit, cost) => [
      `in questo periodo è speso epsilon ${spent} di ${limit} e una segnalazione costa ${cost}`,
      "Aspetta il prossimo periodo, o permetti di più nei limiti.",
    ],
    limitDelta: (value) => [`un limite di delta è ${value}; è una probabilità sotto 1`, "Dane un altro."],
    reportDelta: (cost, limit) => [
      `una segnalazione costa delta ${cost} ed è permesso ${limit}`, "Permetti di più nei limiti, o non partecipare.",
    ],
    periodDelta: (spent, limit, cost) => [
      `in questo periodo è speso delta ${spent} di ${limit} e una segnalazione costa ${cost}`,
      "Aspetta il prossimo periodo, o permetti di più nei limiti.",
    ],
    tooLarge: () => [
      "questa indagine è troppo grande per essere controllata in un browser", "Usa il client della libreria panda-mdp.",
    ],
    outside: () => ["il luogo non è nell'area di questa indagine", "Scegline uno dentro l'area disegnata."],
    needsReport: () => [
      "questa indagine interroga il server tra due estrazioni, quindi non si può estrarre per un luogo da solo",
      "Usa report con un gettone.",
    ],
    otherBall: () => [
      "il server ha mandato luoghi fuori dall'area intorno al punto estratto",
      "Non se ne estrae nulla. Dillo al gestore.",
    ],
    otherRound: () => [
      "il server ha mandato righe di altre ancore, altri esiti o un altro turno", "Non se ne estrae nulla. Dillo al gestore.",
    ],
    roundFailed: (round) => [
      `il turno ${round} è fallito`, "Continua quando un altro è aperto: si usano le stesse ancore, nulla si estrae di nuovo.",
    ],
    roundOpen: (round) => [`il turno ${round} non è ancora risolto`, "Continua più tardi: nulla si estrae di nuovo."],
    noRound: () => ["nessun turno è aperto", "Continua quando il gestore ne avrà aperto uno: nulla si estrae di nuovo."],
    oneSet: (round) => [
      `le ancore di un altro luogo sono già nel turno ${round}, e un turno ne prende un insieme per persona`,
      "Finisci quella segnalazione, o aspetta il prossimo turno.",
    ],
    seal: () => [
      "una voce dei registri di questo browser non corrisponde al suo sigillo; sono danneggiati",
      "Cancella i dati di questo sito; il periodo in corso allora conta come speso.",
    ],
    erased: () => ["ciò che era stato estratto è stato cancellato", ""],
    replaced: () => ["la tabella è stata sostituita dopo l'estrazione", ""],
    notFinite: () => ["un numero firmato non è finito", "Avvisa il gestore."],
    notPrintable: () => ["un campo firmato contiene un carattere che non è ASCII stampabile", "Avvisa il gestore."],
    noEd25519: () => [
      "questo browser non sa controllare firme Ed25519, o la chiave è danneggiata",
      "Usa una versione attuale di Firefox, Safari, Chrome o Edge.",
    ],
    signature: () => [
      "la firma del gestore non corrisponde: la tabella è stata cambiata per via, o l'ha fatta qualcun altro",
      "Non segnalare nulla. Avvisa il gestore.",
    ],
    otherKey: () => [
      "la tabella è firmata con una chiave diversa da quella del gestore", "Non segnalare nulla. Avvisa il gestore.",
    ],
    noPlace: () => ["il luogo non è una latitudine in [-90, 90] e una longitudine in [-180, 360] gradi", ""],
    smallArea: (places, size) => [
      `questa raccolta ha ${places} luoghi in ${size} km quadrati: con così pochi, partecipare dice dove sei`,
      "Non segnalare nulla. Avvisa chi la gestisce.",
    ],
    holes: (km, limit) => [
      `l'area di questa raccolta ha punti a ${km} km da tutti i suoi luoghi, e questa pagina ne permette ${limit}`,
      "Non segnalare nulla. Avvisa chi la gestisce.",
    ],
    quotaSpent: (quota) => [
      `questa raccolta accetta ${quota} segnalazioni di una persona nel suo periodo, e altrettante sono già estratte qui`,
      "Aspetta il prossimo periodo: non si estrae nulla che sarebbe rifiutato.",
    ],
    logDenied: () => [
      "il server dice di non avere un registro pubblico: potrebbe mostrare a ciascuno un'altra tabella",
      "Non segnalare nulla. Avvisa chi la gestisce.",
    ],
    noStatement: () => [
      "ciò che il gestore ha firmato su questa indagine non è una dichiarazione",
      "Non segnalare nulla. Avvisa il gestore.",
    ],
    saidOtherwise: () => [
      "il server dice su questa indagine cose diverse da quelle che il gestore ha firmato",
      "Non segnalare nulla. Avvisa il gestore.",
    ],
    older: (now, before) => [
      `il server mostra la versione ${now} di questa indagine, più vecchia della versione ${before} già vista qui`,
      "Qualcuno ti mostra uno stato passato. Non segnalare nulla.",
    ],
    twoStatements: () => [
      "il gestore ha firmato due dichiarazioni diverse su una stessa versione di questa indagine",
      "Non segnalare nulla.",
    ],
    logForked: () => [
      "il registro pubblico del gestore è stato cambiato: non è più quello visto qui in precedenza",
      "Non segnalare nulla. Confronta la testa del registro con quella di qualcun altro.",
    ],
    notLogged: () => [
      "ciò che il gestore ha firmato su questa indagine non è nel registro pubblico", "Non segnalare nulla.",
    ],
    otherTable: () => ["la tabella non è ciò che l'indagine dice", "Non segnalare nulla; avvisa il gestore."],
    noOneUse: () => [
      "per questo periodo non c'è qui nessun gettone monouso", "Raccoglili un po' prima di segnalare, non insieme.",
    ],
    noIssuer: () => [
      "la chiave dei gettoni monouso non è l'unica del suo periodo nel registro pubblico, o non è una chiave",
      "Non segnalare nulla. Avvisa il gestore.",
    ],
    notIssued: () => [
      "il server non ha firmato i gettoni monouso che gli sono stati chiesti", "Non segnalare nulla. Avvisa il gestore.",
    ],
    otherPeriod: () => [
      "il server firma gettoni monouso di un altro periodo rispetto all'orologio di questo dispositivo",
      "Regola l'orologio, o riprova tra un minuto.",
    ],
    roundOver: (round) => [`il turno ${round} è finito secondo il registro pubblico`, "Non segnalare nulla. Avvisa il gestore."],
    tooFine: () => ["il reticolo di questa indagine è più fitto di quanto si possa inviare", "Avvisa il gestore."],
    noTable: () => ["questa indagine non ha una tabella", ""],
    noMap: () => ["questa tabella non riguarda luoghi su una mappa", ""],
    metric: (kind) => [
      kind === "graph" ? "la protezione di questa tabella segue le strade o la densità, un grafo del gestore: quanto distano i luoghi lo dice allora il gestore"
        : `la metrica ${kind} qui non è nota`,
      "Non è stato estratto nulla: qui valgono le distanze della mappa. Il client Python estrae dove i suoi limiti lo permettono.",
    ],
    damaged: (what) => [`il file è danneggiato (${what})`, "Ricarica la pagina."],
    checksum: () => [
      "la somma di controllo non corrisponde al contenuto; il file è troncato o danneggiato", "Ricarica la pagina.",
    ],
    notTable: () => ["non è una tabella: comincia in un altro modo", ""],
    otherFormat: () => ["il file ha un formato o una versione diversi da quelli che questa pagina legge", ""],
    notPrivate: () => [
      "il controllo di questa pagina ha trovato due luoghi che le segnalazioni distinguono più di quanto promesso",
      "Non usare questa indagine. Avvisa il gestore.",
    ],
    notAudited: () => ["questo luogo non è ancora stato confrontato con tutti gli altri", "Aspetta un momento."],
  },
  codes: {
    unauthorised: "manca un gettone valido",
    token_expired: "il gettone è scaduto",
    forbidden: "il gettone è per un altro uso",
    not_found: "il server non la conosce",
    conflict: "contraddice ciò che il server ha già",
    round_closed: "la raccolta è chiusa",
    wrong_version: "nel frattempo vale un'altra tabella",
    too_large: "la richiesta è troppo grande",
    invalid: "il server la ritiene non valida",
    rate_limited: "il limite del gettone per questo periodo è raggiunto, o le richieste sono troppe",
    unavailable: "il server è occupato",
    internal: "il server ha commesso un errore",
  },
};
