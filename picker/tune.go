package picker
import ("os";"strconv";"fmt")
var T [16]float64
func init(){ for i := range T { T[i]=-1; if v:=os.Getenv(fmt.Sprint("T",i)); v!="" { T[i],_=strconv.ParseFloat(v,64)} } }
func tn(i int, d float64) float64 { if T[i]>=0 {return T[i]}; return d }
